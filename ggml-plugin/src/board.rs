//! Which NPU, if any: the board's own, a simulated one, or none with the reason.

use crate::exec::Meter;
use crate::knobs::Device;
use rocket_runtime::Error;
use rocket_runtime::device::{Board, KernelBoard};
use std::fmt;
use std::sync::Arc;

/// An NPU that can be used.
#[derive(Debug, Clone)]
pub struct Found {
    /// It.
    pub board: Arc<dyn Board>,
    /// Not silicon.
    pub simulated: bool,
    /// What it executed, where it can tell.
    pub meter: Option<Arc<dyn Meter>>,
}

impl Found {
    /// Part and driver, as in `RK3588 NPU (rocket)`.
    pub fn description(&self) -> String {
        format!("{} NPU ({})", self.board.profile().name, self.driver())
    }

    /// Who drives it.
    pub fn driver(&self) -> &'static str {
        if self.simulated { "simulated" } else { "rocket" }
    }
}

/// Why there is no NPU.
#[derive(Debug, PartialEq, Eq)]
pub enum Absent {
    /// The user said so.
    OnPurpose,
    /// In words, with what to do about it.
    Because(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::OnPurpose => f.write_str("ROCKET_DEVICE=none"),
            Absent::Because(why) => f.write_str(why),
        }
    }
}

type Open<'a> = &'a dyn Fn() -> Result<Found, Error>;

/// Finds the NPU that was asked for.
///
/// # Errors
/// Why there is none.
pub fn find(device: &Device) -> Result<Found, Absent> {
    choose(device, &real, &simulated)
}

fn choose(device: &Device, real: Open<'_>, simulated: Open<'_>) -> Result<Found, Absent> {
    let open = match device {
        Device::Real => real,
        Device::Sim => simulated,
        Device::None => return Err(Absent::OnPurpose),
        Device::Unknown(word) => {
            return Err(Absent::Because(format!(
                "ROCKET_DEVICE={word:?} means nothing; leave it unset for the board's NPU, or use \
                 sim or none"
            )));
        }
    };
    open().map_err(|e| Absent::Because(e.to_string()))
}

/// The board's own. Finding it opens it once, so that a missing node or permission is known
/// before the host is told of a device.
fn real() -> Result<Found, Error> {
    let board = KernelBoard::find()?;
    Ok(Found { board: Arc::new(board), simulated: false, meter: None })
}

/// A fresh board in this process, with the arithmetic that a whole model can wait for.
#[cfg(feature = "simulator")]
fn simulated() -> Result<Found, Error> {
    use rocket_sim::{Arithmetic, Config, SimBoard};
    let board = SimBoard::new(Config { arithmetic: Arithmetic::Fast, ..Config::default() });
    Ok(Found { meter: Some(Arc::new(board.clone())), board: Arc::new(board), simulated: true })
}

#[cfg(not(feature = "simulator"))]
fn simulated() -> Result<Found, Error> {
    Err(Error::Unusable { why: "this file was built without the simulator".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocket_runtime::{device::Node, soc};

    #[derive(Debug)]
    struct Fake;
    impl Board for Fake {
        fn profile(&self) -> &'static soc::Profile {
            &soc::RK3588
        }
        fn describe(&self) -> String {
            "a board".into()
        }
        fn open(&self) -> Result<Arc<dyn Node>, Error> {
            Err(Error::Unusable { why: "fake".into() })
        }
    }

    fn fake_sim() -> Result<Found, Error> {
        fake().map(|f| Found { simulated: true, ..f })
    }
    fn fake() -> Result<Found, Error> {
        Ok(Found { board: Arc::new(Fake), simulated: false, meter: None })
    }
    fn never() -> Result<Found, Error> {
        panic!("must not be opened")
    }

    #[test]
    fn the_one_asked_for() {
        let real = choose(&Device::Real, &fake, &never).unwrap();
        assert_eq!(real.description(), "RK3588 NPU (rocket)");
        let sim = choose(&Device::Sim, &never, &fake_sim).unwrap();
        assert_eq!((sim.description().as_str(), sim.simulated), ("RK3588 NPU (simulated)", true));
        assert_eq!(choose(&Device::None, &never, &never).unwrap_err(), Absent::OnPurpose);
        let Absent::Because(why) =
            choose(&Device::Unknown("gpu".into()), &never, &never).unwrap_err()
        else {
            panic!("not on purpose")
        };
        assert!(why.contains("\"gpu\"") && why.contains("sim or none"), "{why}");
    }

    #[test]
    fn the_reason_is_the_runtimes() {
        let denied = || {
            Err(Error::Permission {
                path: "/dev/accel/accel0".into(),
                mode: 0o600,
                group: "root".into(),
                advice: "render".into(),
            })
        };
        let why = choose(&Device::Real, &denied, &never).unwrap_err().to_string();
        assert!(why.contains("mode 0600") && why.contains("group root"), "{why}");
    }
}
