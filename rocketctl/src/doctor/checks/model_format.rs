use super::super::finding::Finding;
use super::super::{About, Case, Check};
use crate::model::{Error, Format};

const ID: &str = "model.format";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Hosts take GGUF 2 and 3, whole or in parts that lie in one folder, and whisper.cpp its own format. A \
              file that a download left unfinished has a header, and tensors that reach beyond its end. Only headers \
              are read.",
    after: &[],
    about: About::Model,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some(model) = &case.named.model else {
        return Finding::unknown(ID, "no model", "none was named");
    };
    let shown = model.path.display().to_string();
    match &model.header {
        Ok(h) => {
            let kind = match h.format {
                Format::Gguf(version) => format!("GGUF {version}, {}", h.architecture),
                Format::Whisper => "whisper.cpp's format".to_owned(),
            };
            let parts = if h.parts > 1 { format!(" in {} parts", h.parts) } else { String::new() };
            Finding::ok(
                ID,
                format!("{kind}, {} tensors, {} MiB{parts}", h.tensors.len(), h.bytes >> 20),
            )
        }
        Err(Error::Unreadable(why)) => Finding::unknown(ID, "the model's header", why),
        Err(e @ Error::Truncated(_)) => Finding::fail(ID, "the model's file is not whole")
            .cause(format!("{e}. A download that was interrupted looks like that: fetch it again."))
            .seen(shown, "cut"),
        Err(e @ Error::MissingPart(_)) => Finding::fail(ID, "a part of the model is missing")
            .cause(format!(
                "{e}. All parts belong in one folder, under the names that they were given."
            ))
            .seen(shown, "one part of several"),
        Err(e) => Finding::fail(ID, "the file is no model that hosts take")
            .cause(e.to_string())
            .seen(shown, "its header"),
    }
}
