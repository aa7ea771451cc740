//! Which NPU, if any: the board's own, a simulated one, or none with the reason.

use crate::knobs::Device;
use rocket_runtime::{Error, device::Board};
use std::fmt;
use std::sync::Arc;

/// An NPU that can be used.
#[derive(Debug, Clone)]
pub struct Found {
    /// It.
    pub board: Arc<dyn Board>,
    /// Not silicon.
    pub simulated: bool,
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

type Open<'a> = &'a dyn Fn() -> Result<Arc<dyn Board>, Error>;

/// Finds the NPU that was asked for.
///
/// # Errors
/// Why there is none.
pub fn find(device: &Device) -> Result<Found, Absent> {
    choose(device, &real, &simulated)
}

fn choose(device: &Device, real: Open<'_>, simulated: Open<'_>) -> Result<Found, Absent> {
    let (open, is_simulated) = match device {
        Device::Real => (real, false),
        Device::Sim => (simulated, true),
        Device::None => return Err(Absent::OnPurpose),
        Device::Unknown(word) => {
            return Err(Absent::Because(format!(
                "ROCKET_DEVICE={word:?} means nothing; leave it unset for the board's NPU, or use \
                 sim or none"
            )));
        }
    };
    match open() {
        Ok(board) => Ok(Found { board, simulated: is_simulated }),
        Err(e) => Err(Absent::Because(e.to_string())),
    }
}

/// The board's own: opened once here, so that a missing node or permission is known before the
/// host is told of a device.
fn real() -> Result<Arc<dyn Board>, Error> {
    // The one place for rocket_runtime::device::find().
    Err(Error::NoNode { looked: "this build looks for no accel node yet".to_owned() })
}

#[cfg(feature = "simulator")]
fn simulated() -> Result<Arc<dyn Board>, Error> {
    // The one place for rocket_sim::SimBoard::new(rocket_sim::Config::default()).
    Err(Error::Unusable { why: "this build's simulator has no board yet".to_owned() })
}

#[cfg(not(feature = "simulator"))]
fn simulated() -> Result<Arc<dyn Board>, Error> {
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

    fn fake() -> Result<Arc<dyn Board>, Error> {
        Ok(Arc::new(Fake))
    }
    fn never() -> Result<Arc<dyn Board>, Error> {
        panic!("must not be opened")
    }

    #[test]
    fn the_one_asked_for() {
        let real = choose(&Device::Real, &fake, &never).unwrap();
        assert_eq!(real.description(), "RK3588 NPU (rocket)");
        let sim = choose(&Device::Sim, &never, &fake).unwrap();
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
