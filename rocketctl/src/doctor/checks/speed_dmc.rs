use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};

const ID: &str = "speed.dmc";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Tokens one at a time are as fast as memory is. Some kernels scale its clock (a devfreq device dmc), \
              and a governor that keeps it down halves the speed. Mainline does not: there it runs as the boot left \
              it.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let devices = match &case.facts.devfreq {
        Ok(devices) => devices,
        Err(absent) => return Finding::unread(ID, "whether memory's clock is scaled", absent),
    };
    let Some(dmc) = devices.iter().find(|d| d.name.contains("dmc")) else {
        return Finding::ok(ID, "this kernel leaves memory's clock alone");
    };
    let governor = match &dmc.governor {
        Ok(governor) => governor.clone(),
        Err(absent) => return Finding::unread(ID, "who decides on memory's clock", absent),
    };
    let mhz = |hz: u64| hz / 1_000_000;
    let held = match (&dmc.now, &dmc.most) {
        (Ok(now), Ok(most)) if now < most => Some((*now, *most)),
        _ => None,
    };
    let finding = match (governor.as_str(), held) {
        ("performance", _) => return Finding::ok(ID, "memory runs at its full clock"),
        ("powersave", held) => {
            let (now, most) = held.unwrap_or_default();
            Finding::warn(ID, "memory's clock is kept down").cause(match most {
                0 => "Tokens one at a time are as fast as memory is.".to_owned(),
                _ => format!(
                    "{} of {} MHz: tokens one at a time are as fast as memory is.",
                    mhz(now),
                    mhz(most)
                ),
            })
        }
        _ => return Finding::ok(ID, format!("memory's clock follows the load ({governor})")),
    };
    let file = format!("{}/governor", dmc.path);
    let at = word(&file);
    finding.seen(file.clone(), governor.clone()).fix(
        format!("echo performance | sudo tee {at}"),
        "rocketctl doctor --only speed.dmc",
        format!("echo {} | sudo tee {at}", word(&governor)),
    )
}
