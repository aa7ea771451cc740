//! A simulated board whose buffers lie where a vector says.

use rocket_runtime::device::{BoInfo, Board, Deadline, JobRef, Mapping, Node};
use rocket_runtime::uapi::Task;
use rocket_sim::{Arithmetic, Config};
use rocket_tests::TestBoard;
use std::sync::Arc;

/// One file of a simulated board, whose buffers are laid out so that they get the addresses a
/// vector asks for.
pub struct Bench {
    pub board: TestBoard,
    node: Arc<dyn Node>,
    objects: Vec<(BoInfo, Mapping)>,
    end: u32,
}

impl Bench {
    pub fn new(arithmetic: Arithmetic) -> Bench {
        let board = TestBoard::new(Config { arithmetic, ..Config::default() });
        let node = board.open().expect("opens");
        Bench { board, node, objects: Vec::new(), end: 0 }
    }

    /// A buffer at exactly `iova`, up to `end`.
    pub fn place(&mut self, iova: u32, end: u32) {
        if iova > self.end {
            // Fills the hole; the window is handed out from its start.
            self.object(iova - self.end);
        }
        let got = self.object(end - iova);
        assert_eq!(got, iova, "the window is handed out in order");
    }

    fn object(&mut self, size: u32) -> u32 {
        let info = self.node.create_bo(size).expect("allocates");
        let mapping = self.node.map_bo(&info, size as usize).expect("maps");
        self.objects.push((info, mapping));
        self.end = info.iova as u32 + size.next_multiple_of(4096);
        info.iova as u32
    }

    fn find(&self, iova: u32, len: usize) -> (&BoInfo, usize) {
        let hit = self.objects.iter().find(|(info, map)| {
            let start = info.iova as u32;
            iova >= start && iova as usize + len <= start as usize + map.len()
        });
        let (info, _) = hit.unwrap_or_else(|| panic!("nothing at {iova:#x}"));
        (info, (iova as u64 - info.iova) as usize)
    }

    fn mapping(&self, handle: u32) -> &Mapping {
        &self.objects.iter().find(|(i, _)| i.handle == handle).expect("known").1
    }

    #[allow(unsafe_code)]
    pub fn write(&self, iova: u32, data: &[u8]) {
        let (info, offset) = self.find(iova, data.len());
        let map = self.mapping(info.handle);
        // SAFETY: `find` checked the range; no job is running.
        unsafe { map.as_ptr().as_ptr().add(offset).copy_from(data.as_ptr(), data.len()) };
        self.node.fini_bo(info.handle).expect("flushes");
    }

    #[allow(unsafe_code)]
    pub fn read(&self, iova: u32, len: usize) -> Vec<u8> {
        let (info, offset) = self.find(iova, len);
        self.node.prep_bo(info.handle, Deadline::after_ms(5_000)).expect("finishes");
        let map = self.mapping(info.handle);
        // SAFETY: `find` checked the range; the job was waited for.
        unsafe { std::slice::from_raw_parts(map.as_ptr().as_ptr().add(offset), len) }.to_vec()
    }

    /// Runs one program whose results lie at `output`.
    pub fn run(&mut self, words: &[u64], output: u32) {
        self.run_times(words, output, 1);
    }

    /// Runs one program that many times, in one job.
    pub fn run_times(&mut self, words: &[u64], output: u32, times: usize) {
        let size = words.len() * 8;
        let regcmd = self.object(size as u32);
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(regcmd, &data);
        let out = self.find(output, 1).0.handle;
        let reads: Vec<u32> =
            self.objects.iter().map(|o| o.0.handle).filter(|h| *h != out).collect();
        let tasks = vec![Task { regcmd, regcmd_count: words.len() as u32 }; times];
        let job = JobRef { tasks: &tasks, reads: &reads, writes: &[out], flags: 0 };
        self.node.submit(&[job]).expect("submits");
    }
}
