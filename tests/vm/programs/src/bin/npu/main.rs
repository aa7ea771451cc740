//! npu: answers as the NPU, behind the kernel's driver. A thread a core waits for the driver's kick,
//! has the simulator run it, reaching memory through /dev/npumemory alone, and raises the interrupt.

mod mapped;

use anyhow::{Context, Result};
use mapped::Registers;
use rocket_sim::Config;
use rocket_sim::silicon::{Bus, Core, Kick, Silicon};
use rocket_vm::{HANG, STATUS, Status};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As in tests/vm/board.dts.
const WINDOW: u64 = 0x7f00_0000;
const WINDOW_BYTES: usize = 0x20_0000;
const CORE_STRIDE: usize = 0x1_0000;
const CORES: usize = 3;
const FIRST_INTERRUPT: usize = 32 + 100;
/// Where fakepower.c counts each core's resets.
const RESET_COUNTS: usize = 0x1f_0000;

/// The interrupt controller's distributor, and its set-pending registers.
const GICD: u64 = 0x0800_0000;
const GICD_ISPENDR: usize = 0x200;

/// PC block (kernel-and-uapi B.2).
const OPERATION_ENABLE: usize = 0x08;
const BASE_ADDRESS: usize = 0x10;
const REGISTER_AMOUNTS: usize = 0x14;
const INTERRUPT_CLEAR: usize = 0x24;
const RAW_STATUS: usize = 0x2c;
const TASK_CON: usize = 0x30;
const TASK_NUMBER: u32 = 0xfff;

/// Memory as npumemory.c shows it to a core.
#[derive(Debug)]
struct Memory {
    file: File,
    core: u64,
}

impl Bus for Memory {
    fn read(&self, addr: u64, to: &mut [u64]) -> io::Result<()> {
        self.file.read_exact_at(bytemuck::cast_slice_mut(to), self.core << 40 | addr)
    }

    fn write(&self, addr: u64, from: &[u64]) -> io::Result<()> {
        self.file.write_all_at(bytemuck::cast_slice(from), self.core << 40 | addr)
    }
}

struct Machine {
    window: Registers,
    distributor: Registers,
    silicon: Silicon,
    status: Mutex<Status>,
}

impl Machine {
    fn note(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut status);
        if let Err(e) = status.write(Path::new(STATUS)) {
            println!("npu: {STATUS}: {e}");
        }
    }

    /// The life of a core.
    fn run(&self, number: usize, mut core: Core) {
        let at = |register| number * CORE_STRIDE + register;
        let resets = || self.window.get(RESET_COUNTS + 4 * number);
        loop {
            while self.window.get(at(OPERATION_ENABLE)) != 1 {
                std::thread::sleep(Duration::from_micros(50));
            }
            let before = resets();
            let started = Instant::now();
            let kick = Kick {
                base_address: self.window.get(at(BASE_ADDRESS)),
                register_amounts: self.window.get(at(REGISTER_AMOUNTS)),
                tasks: (self.window.get(at(TASK_CON)) & TASK_NUMBER) as usize,
            };
            let wanted = std::fs::remove_file(HANG).is_ok();
            let done = if wanted { None } else { core.kick(kick) };
            let Some(status) = done else {
                self.note(|s| s.hangs += 1);
                match self.silicon.explanations().last() {
                    Some(why) if !wanted => println!("npu: core {number} hangs: {why}"),
                    _ => println!("npu: core {number} hangs as it was told"),
                }
                // Until it is reset, which clears its registers.
                while resets() == before {
                    std::thread::sleep(Duration::from_millis(1));
                }
                core.reset();
                continue;
            };
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.note(|s| {
                s.kicks[number] += 1;
                s.longest_ms = s.longest_ms.max(ms);
            });
            self.window.set(at(INTERRUPT_CLEAR), 0);
            self.window.set(at(RAW_STATUS), status);
            fence(Ordering::SeqCst);
            let interrupt = FIRST_INTERRUPT + number;
            self.distributor.set(GICD_ISPENDR + interrupt / 32 * 4, 1 << (interrupt % 32));
            // The driver stops the core and clears all, and may have started it again by then.
            while self.window.get(at(INTERRUPT_CLEAR)) == 0 {
                std::thread::sleep(Duration::from_micros(20));
            }
            self.window.set(at(RAW_STATUS), 0);
        }
    }
}

fn main() -> Result<()> {
    let machine = Machine {
        window: Registers::map(WINDOW, WINDOW_BYTES).context("the cores' registers")?,
        distributor: Registers::map(GICD, 0x1_0000).context("the interrupt controller")?,
        silicon: Silicon::new(Config::default()),
        status: Mutex::default(),
    };
    let memory = OpenOptions::new().read(true).write(true).open("/dev/npumemory");
    let memory = memory.context("/dev/npumemory")?;
    std::thread::scope(|scope| {
        for number in 0..CORES {
            let file = memory.try_clone().context("/dev/npumemory")?;
            let core = machine.silicon.core(number, Arc::new(Memory { file, core: number as u64 }));
            let machine = &machine;
            scope.spawn(move || machine.run(number, core));
        }
        machine.note(|_| ()); // ready
        Ok(())
    })
}
