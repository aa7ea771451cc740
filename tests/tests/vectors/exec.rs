//! Whole programs on the simulated board, through the driver's calls: memory before, program,
//! every output byte.

use crate::Ran;
use crate::json::{File, bytes, list, number, u32_of};
use crate::programs::{assert_words, task};
use half::f16;
use rocket_runtime::device::{BoInfo, Board, Deadline, JobRef, Mapping, Node};
use rocket_runtime::dtype::DType;
use rocket_runtime::program::{Ew, MatmulTask, Operand, Reuse};
use rocket_runtime::uapi::Task;
use rocket_sim::{Arithmetic, Config, SimBoard};
use std::sync::Arc;

/// One file of a simulated board, whose buffers are laid out so that they get the addresses a
/// vector asks for.
struct Bench {
    board: SimBoard,
    node: Arc<dyn Node>,
    objects: Vec<(BoInfo, Mapping)>,
    end: u32,
}

impl Bench {
    fn new(arithmetic: Arithmetic) -> Bench {
        let board = SimBoard::new(Config { arithmetic, ..Config::default() });
        let node = board.open().expect("opens");
        Bench { board, node, objects: Vec::new(), end: 0 }
    }

    /// A buffer at exactly `iova`, up to `end`.
    fn place(&mut self, iova: u32, end: u32) {
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
    fn write(&self, iova: u32, data: &[u8]) {
        let (info, offset) = self.find(iova, data.len());
        let map = self.mapping(info.handle);
        // SAFETY: `find` checked the range; no job is running.
        unsafe { map.as_ptr().as_ptr().add(offset).copy_from(data.as_ptr(), data.len()) };
        self.node.fini_bo(info.handle).expect("flushes");
    }

    #[allow(unsafe_code)]
    fn read(&self, iova: u32, len: usize) -> Vec<u8> {
        let (info, offset) = self.find(iova, len);
        self.node.prep_bo(info.handle, Deadline::after_ms(5_000)).expect("finishes");
        let map = self.mapping(info.handle);
        // SAFETY: `find` checked the range; the job was waited for.
        unsafe { std::slice::from_raw_parts(map.as_ptr().as_ptr().add(offset), len) }.to_vec()
    }

    /// Runs one program whose results lie at `output`.
    fn run(&mut self, words: &[u64], output: u32) {
        let size = words.len() * 8;
        let regcmd = self.object(size as u32);
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(regcmd, &data);
        let out = self.find(output, 1).0.handle;
        let reads: Vec<u32> =
            self.objects.iter().map(|o| o.0.handle).filter(|h| *h != out).collect();
        let tasks = [Task { regcmd, regcmd_count: words.len() as u32 }];
        let job = JobRef { tasks: &tasks, reads: &reads, writes: &[out], flags: 0 };
        self.node.submit(&[job]).expect("submits");
    }
}

pub fn exec(file: &File) -> Ran {
    let v = &file.value;
    let dtype = file.text("dtype").expect("dtype");
    if !dtype.starts_with("fp16") {
        return Ran::new(format!("exec {dtype} (words only)"), words_only(file));
    }
    words_only(file);
    let memory = &v["memory"];
    let output = u32_of(&memory["output"]["iova"]);
    let want = bytes(&memory["output"]["hex"]);
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let mut bench = Bench::new(arithmetic);
        let mut areas: Vec<(u32, Vec<u8>)> = ["input", "weights", "add"]
            .iter()
            .filter(|key| !memory[**key].is_null())
            .map(|key| (u32_of(&memory[*key]["iova"]), bytes(&memory[*key]["hex"])))
            .collect();
        // A pattern that no result has, so that a byte nobody stored shows.
        areas.push((output, vec![0xA5; want.len()]));
        areas.sort();
        for (iova, data) in &areas {
            bench.place(*iova, *iova + (data.len() as u32).next_multiple_of(4096));
        }
        areas.iter().for_each(|(iova, data)| bench.write(*iova, data));
        bench.run(&file.words(), output);
        let got = bench.read(output, want.len());
        let differ = got.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{file} ({arithmetic:?}): first differing byte");
        assert_eq!(bench.board.explanations().len(), 0, "{file}: {:?}", bench.board.explanations());
    }
    Ran::new(format!("exec {dtype}"), list(&v["matrices"]["C"]).iter().map(|r| list(r).len()).sum())
}

/// The program of an exec vector is ours to the word, whatever its type.
fn words_only(file: &File) -> usize {
    let ours = task(&file.value).encode().expect("encodable");
    assert_words(&ours, &file.words(), file);
    1
}

/// fp16 values written as four hex digits each.
fn halves(file: &File, key: &str) -> Vec<u8> {
    let hex = file.text(key).expect("values");
    (0..hex.len())
        .step_by(4)
        .flat_map(|i| u16::from_str_radix(&hex[i..i + 4], 16).expect("hex").to_le_bytes())
        .collect()
}

/// Two stored tensors joined by the elementwise stage, the first through an identity matmul.
pub fn elementwise(file: &File, op: &str) -> Ran {
    let (shape, dma) = (&file.value["shape"], &file.value["dma"]);
    let [m, k, n] = ["M", "K", "N"].map(|key| u32_of(&shape[key]));
    let at = |key: &str| u32_of(&dma[key]);
    let ew = match op {
        "eltwise_add" => Ew::Add,
        "eltwise_mul" => Ew::Mul,
        _ => Ew::Max,
    };
    let ours = MatmulTask {
        dtype: DType::Fp16,
        m,
        k,
        n,
        input: at("input_a"),
        weights: at("weights"),
        output: at("output"),
        operand: Some(Operand { op: ew, iova: at("operand_b") }),
        reuse: Reuse::None,
    };
    assert_words(&ours.encode().expect("encodable"), &file.words(), file);

    // Identity, by the weight cube's own rule (npu-rk3588 3.3): N = K = 32 is two blocks.
    let identity: Vec<u8> = (0..k as usize * n as usize)
        .flat_map(|i| {
            let (block, kernel, channel) = (i / 512, i % 512 / 32, i % 32);
            let one = block * 16 + kernel == channel;
            if one { f16::ONE } else { f16::ZERO }.to_le_bytes()
        })
        .collect();
    let want = halves(file, "out_fp16_hex");
    let mut bench = Bench::new(Arithmetic::Exact);
    bench.place(0, 0x10000);

    bench.write(at("weights"), &identity);
    bench.write(at("input_a"), &halves(file, "a_fp16_hex"));
    bench.write(at("operand_b"), &halves(file, "b_fp16_hex"));
    bench.run(&file.words(), at("output"));
    let got = bench.read(at("output"), want.len());
    assert_eq!(got, want, "{file}");
    Ran::new("elementwise", number(&shape["n"]) as usize)
}
