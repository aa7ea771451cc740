//! The steps of the chain, and what each is about.

pub const OPEN: &str = "load.open";
pub const DEVICES: &str = "load.devices";

/// What is said of a plugin without an NPU.
pub const NO_DEVICE: &str = "the plugin is loaded and has no device";

/// The steps in their order: the program's word, the finding, and what it is about.
pub(super) const STEPS: [(&str, &str, &str); 8] = [
    (
        "libraries",
        "load.libraries",
        "The host's libggml-base and libggml are opened first, as a program that is linked with them has them. What \
         they need must be in the host's system.",
    ),
    (
        "backends",
        "load.backends",
        "The host's own backends come before the plugin, the CPU's among them. That one says whether it repacks \
         weights, which are then out of the NPU's reach (host.repack).",
    ),
    (
        "interface",
        "load.interface",
        "The generation of the host's interface is measured as the plugin measures it: the host's accessors are \
         called on objects filled with marks. Version numbers do not tell generations apart.",
    ),
    (
        "open",
        OPEN,
        "The plugin is opened with RTLD_NOW and RTLD_LOCAL. Missing libraries, versions and symbols show here, and \
         constructors that crash.",
    ),
    (
        "score",
        "load.score",
        "A plugin may rate itself on this processor by ggml_backend_score; with 0 the host passes it over.",
    ),
    (
        "init",
        "load.init",
        "The host's loader calls ggml_backend_init and compares the API version that it is given with its own. A \
         plugin that does not know the host returns nothing, after saying why.",
    ),
    ("register", "load.register", "The host's registry has the plugin's backend, by its name."),
    (
        "devices",
        DEVICES,
        "The backend has devices, of the kind for accelerators. None means that the plugin was loaded and found no \
         NPU that it may use.",
    ),
];

/// What a step is about, for `rocketctl explain`.
pub fn explain(id: &str) -> Option<&'static str> {
    STEPS.iter().find(|(_, i, _)| *i == id).map(|(_, _, text)| *text)
}
