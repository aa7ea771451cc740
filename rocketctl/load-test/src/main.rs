//! Loads a plugin the way a host's loader does (ggml-abi 4), one step after the other, and says of each that it
//! begins and what came of it, as lines of JSON on standard output: who reads them knows where this process was when
//! it crashed. What host and plugin print themselves goes to standard error.
//!
//!     rocket-load-test LIBGGML-BASE LIBGGML FOLDER-OF-MODULES PLUGIN
//!
//! The folder may be `-`. Status 0 when the chain was gone through, whatever came of it; 2 usage.

mod border;

use border::{Device, Library};
use ggml_rocket::abi::{SUPPORTED, probe, verdict};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base, ggml, modules, plugin] = arguments.as_slice() else {
        eprintln!("usage: rocket-load-test LIBGGML-BASE LIBGGML FOLDER-OF-MODULES PLUGIN");
        return ExitCode::from(2);
    };
    if let Err(e) = border::keep_output() {
        eprintln!("rocket-load-test: {e}");
        return ExitCode::from(2);
    }
    if chain([base, ggml, modules, plugin].map(Path::new)) {
        // Destructors still run: whoever sees this line and a signal knows that it was one of those.
        done("end", json!({}));
    }
    ExitCode::SUCCESS
}

fn begin(step: &str) {
    border::say(&json!({"step": step, "status": "begin"}));
}

fn outcome(step: &str, status: &str, mut words: Value) {
    words["step"] = step.into();
    words["status"] = status.into();
    border::say(&words);
}

fn done(step: &str, words: Value) {
    outcome(step, "ok", words);
}

fn failed(step: &str, words: Value) -> bool {
    outcome(step, "fail", words);
    false
}

/// All steps, to the first that fails.
fn chain([base, ggml, modules, plugin]: [&Path; 4]) -> bool {
    begin("libraries");
    // As a program that is linked with them: what they export, everybody sees.
    let opened = Library::open(base, true).and_then(|b| Ok([Library::open(ggml, true)?, b]));
    let host = match opened {
        Ok(libraries) => border::Host::new(libraries),
        Err(why) => return failed("libraries", json!({"why": why})),
    };
    done("libraries", json!({"version": probe::version(&host)}));
    host.listen();

    begin("backends");
    let folder = modules.to_str().filter(|m| *m != "-").map(|_| modules);
    host.load_all(folder);
    let cpu = host.cpu();
    done(
        "backends",
        json!({
            "registered": host.registered(),
            "extra": cpu.as_ref().and_then(|c| host.extra_buffers(c)),
            "features": cpu.as_ref().and_then(|c| host.features(c)),
        }),
    );

    let generation = interface(&host);
    load(&host, plugin, generation)
}

/// Which interface the host has, as the plugin would find. Another plugin may know it all the same.
fn interface(host: &border::Host) -> Value {
    begin("interface");
    let probes = probe::measure(host, 0, verdict::plausible);
    let supported = json!([SUPPORTED[0].name, SUPPORTED[SUPPORTED.len() - 1].name]);
    let (status, generation, why) = match verdict::decide(&probes, false) {
        Ok(g) => {
            ("ok", json!({"name": g.name, "era": g.era, "api": g.api, "accel": g.accel}), None)
        }
        Err(why) => ("fail", Value::Null, Some(why)),
    };
    outcome(
        "interface",
        status,
        json!({
            "numbers": verdict::numbers(&probes),
            "host_api": probes.host_api,
            "generation": generation,
            "supported": supported,
            "why": why,
        }),
    );
    generation
}

fn load(host: &border::Host, path: &Path, generation: Value) -> bool {
    begin("open");
    let library = match Library::open(path, false) {
        Ok(library) => library,
        Err(why) => return failed("open", json!({"why": why})),
    };
    done("open", json!({}));

    begin("score");
    match library.score() {
        Some(0) => return failed("score", json!({"score": 0})),
        score => done("score", json!({"score": score})),
    }

    begin("init");
    if library.symbol(c"ggml_backend_init").is_none() {
        return failed("init", json!({"why": "there is no ggml_backend_init in it"}));
    }
    let before = host.registered();
    let Some(reg) = host.load(path) else {
        // The host has closed it, and says little; the library is still open here, so ask it again.
        let api = library.init();
        return failed("init", json!({"api": api, "null": api.is_none()}));
    };
    let name = host.reg_name(&reg);
    done("init", json!({"api": reg.api(), "name": name}));

    begin("register");
    let after = host.registered();
    // A second load of the same one is passed over from 0.10.1 on: what counts is that it is there.
    match after.contains(&name) {
        true => done("register", json!({"before": before, "after": after})),
        false => return failed("register", json!({"before": before, "after": after})),
    }

    begin("devices");
    let devices: Vec<Device> = host.devices(&reg);
    let listed: Vec<Value> = devices.iter().map(|d| describe(d, &generation)).collect();
    match listed.is_empty() {
        true => failed("devices", json!({"devices": []})),
        false => {
            done("devices", json!({"devices": listed}));
            true
        }
    }
}

fn describe(device: &Device, generation: &Value) -> Value {
    let accel = generation["accel"].as_i64().map(|accel| accel == i64::from(device.kind));
    json!({
        "name": device.name,
        "description": device.description,
        "kind": device.kind,
        "accelerator": accel,
    })
}
