use super::super::finding::Finding;
use super::super::host::Host;
use super::super::plugin::quoted;
use super::super::remedy::{BUILT, host_without, of_host};
use super::super::{About, Case, Check};

const ID: &str = "host.rival";

pub const CHECK: Check = Check {
    id: ID,
    explain: "ggml loads its own backends before GGML_BACKEND_PATH, and asks them first. Layers go to a GPU that one \
              of them finds, and only what is left to the CPU's side can go to the NPU. BLAS is an accelerator of \
              the same kind as the NPU, and takes the large products before it.",
    after: &["host.dynamic"],
    about: About::Host,
    required: false,
    run,
};

/// How many layers llama.cpp gives to GPUs.
const LAYERS: &str = "LLAMA_ARG_N_GPU_LAYERS";

/// Backends in the order of the loader (ggml-abi 4), and whether they are accelerators beside the CPU.
const RIVALS: [(&str, bool); 14] = [
    ("blas", true),
    ("zendnn", true),
    ("cann", false),
    ("cuda", false),
    ("hip", false),
    ("metal", false),
    ("sycl", false),
    ("vulkan", false),
    ("virtgpu", false),
    ("opencl", false),
    ("hexagon", false),
    ("musa", false),
    ("openvino", false),
    ("kompute", false),
];

/// The files of such backends: modules, and libraries that ggml is linked with.
fn rivals(host: &Host) -> Vec<(&str, bool)> {
    let files = host.modules.iter().chain(&host.libraries.objects);
    let rival = |path: &str| {
        let name = path.rsplit('/').next()?.strip_prefix("libggml-")?;
        let kind = name.split(['.', '-']).next()?;
        RIVALS.iter().find(|(k, _)| *k == kind).map(|(_, accelerator)| *accelerator)
    };
    files.filter_map(|o| Some((o.path.as_str(), rival(&o.path)?))).collect()
}

fn run(case: &Case) -> Finding {
    let Some(host) = &case.named.host else {
        return Finding::unknown(ID, "other accelerators", "no host was named");
    };
    let all = rivals(host);
    let Some((path, accelerator)) = all.iter().find(|(_, a)| *a).or(all.first()).copied() else {
        return Finding::ok(ID, "the host brings no other accelerator");
    };
    let kept = case.environment.as_ref().ok().and_then(|e| e.get(LAYERS));
    if !accelerator && kept.is_some_and(|v| v == "0") {
        return Finding::ok(ID, format!("no layers go to other accelerators ({LAYERS}=0)"));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut finding = match accelerator {
        true => Finding::warn(ID, format!("{name} takes large products before the NPU"))
            .cause("It is asked first, and does on the CPU what the NPU could do. Put it out of the loader's way."),
        false => Finding::note(ID, format!("{name} comes before the NPU where it finds a device"))
            .cause("Layers that it takes are not seen by the NPU: keep them on the CPU's side with -ngl 0, or -ng of whisper.cpp."),
    };
    for (path, _) in &all {
        finding = finding.seen(*path, "is loaded before GGML_BACKEND_PATH");
    }
    let place = match &host.own_root {
        Some(root) => format!("{}{path}", root.path().display()),
        None => path.to_owned(),
    };
    let (from, to) = (quoted(&place), quoted(&format!("{place}.off")));
    let verify = host.verify(ID);
    match accelerator && host.modules.iter().any(|m| m.path == path) {
        true => finding.fix(format!("sudo mv {from} {to}"), verify, format!("sudo mv {to} {from}")),
        false if accelerator => {
            let kind = name.trim_start_matches("libggml-").split(['.', '-']).next();
            let option = format!("GGML_{}", kind.unwrap_or_default().to_uppercase());
            host_without(finding, &option, of_host(ID)(BUILT))
        }
        false => finding.fix(format!("export {LAYERS}=0"), verify, format!("unset {LAYERS}")),
    }
}
