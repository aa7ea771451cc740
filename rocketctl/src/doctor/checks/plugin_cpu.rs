use super::super::finding::Finding;
use super::super::named::VARIABLE;
use super::super::remedy::{other_plugin, set};
use super::super::{About, Case, Check};
use crate::elf::Text;
use rocket_runtime::board::Reading;

const ID: &str = "plugin.cpu";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A plugin that was compiled for a newer processor ends its host with SIGILL. Files seldom say which \
              instructions they use: x86 libraries may, in a note. This suite's plugin asks the processor before \
              it does anything, and is built for any AArch64 with Advanced SIMD (RK3576's A53 and A72 too), or \
              any x86-64.",
    after: &["plugin.elf"],
    about: About::Plugin,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let plugin = case.named.plugin.as_ref().and_then(|p| Some((p, p.elf()?)));
    let Some((plugin, elf)) = plugin else {
        return Finding::unknown(ID, "the instructions that it uses", "the file cannot be read");
    };
    let flags = match &case.named.cpu {
        Ok(flags) => flags,
        Err(absent) => return Finding::unread(ID, "what this processor can do", absent),
    };
    let has = |name: &str| flags.iter().any(|f| f == name);
    let levels = [("x86-64-v4", "avx512f"), ("x86-64-v3", "avx2"), ("x86-64-v2", "sse4_2")];
    if let Some((level, flag)) =
        levels.iter().find(|(level, flag)| elf.features.contains(level) && !has(flag))
    {
        let finding = Finding::fail(
            ID,
            format!("the plugin is built for {level}, this processor is not one"),
        );
        let finding = finding
            .cause("The first such instruction ends the host with SIGILL.")
            .seen("/proc/cpuinfo", format!("no {flag}"));
        return other_plugin(finding, plugin, None, ID);
    }
    if elf.has(Text::Ours) && elf.exports("ggml_backend_score") {
        let lacks =
            crate::elf::machine_name(elf.machine) == "aarch64" && !(has("fp") && has("asimd"));
        return match lacks {
            false => Finding::ok(ID, "built for any processor of its kind, and asks first"),
            true => Finding::fail(ID, "this processor has no Advanced SIMD")
                .cause("The plugin says so to the host, which goes on without it.")
                .seen("/proc/cpuinfo", flags.join(" "))
                .fix(
                    format!("unset {VARIABLE}"),
                    format!("test -z \"${{{VARIABLE}-}}\""),
                    set(&plugin.given),
                ),
        };
    }
    match elf.features.iter().find(|f| f.starts_with("x86-64-v")) {
        Some(level) => Finding::ok(ID, format!("built for {level}, which this processor is")),
        None => Finding::unknown(
            ID,
            "the instructions that it uses",
            "the file does not say; rocketctl load-test loads it in a process of its own",
        ),
    }
}

/// The features of the first processor (`flags` of x86, `Features` of Arm).
pub fn features(cpuinfo: Reading<String>) -> Reading<Vec<String>> {
    let text = cpuinfo?;
    let line = text.lines().find(|l| l.starts_with("flags") || l.starts_with("Features"));
    let words = line.and_then(|l| l.split_once(':')).map(|(_, w)| w).unwrap_or_default();
    Ok(words.split_whitespace().map(str::to_owned).collect())
}
