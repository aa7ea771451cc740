use super::super::finding::Finding;
use super::super::model::Model;
use super::super::{About, Case, Check};
use crate::forecast::quoted;
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
        Err(e) => {
            let (title, cause, seen) = match e {
                Error::Truncated(_) => (
                    "the model's file is not whole",
                    "A download that was interrupted looks like that: fetch it again",
                    "cut",
                ),
                Error::MissingPart(_) => (
                    "a part of the model is missing",
                    "All parts belong in one folder, under the names that they were given",
                    "one part of several",
                ),
                _ => ("the file is no model that hosts take", "Fetch one that is", "its header"),
            };
            let finding = Finding::fail(ID, title)
                .cause(format!("{e}. {cause}; $URL is its address."))
                .seen(shown, seen);
            fetched(finding, model, e)
        }
    }
}

/// The file from where it came: its rest, a part, or one in its place.
fn fetched(finding: Finding, model: &Model, e: &Error) -> Finding {
    let whole = |file: &str| format!("curl -fL -o {file} \"$URL\"");
    match e {
        Error::Truncated(_) => finding.fix(
            format!("curl -fL -C - -o {} \"$URL\"", model.word()),
            Model::ask(&model.word(), ID),
            "none needed: what is there is only added to",
        ),
        Error::MissingPart(why) => match why.strip_suffix(" is not there") {
            Some(part) => {
                let part = quoted(part);
                finding.fix(whole(&part), Model::ask(&model.word(), ID), format!("rm {part}"))
            }
            // The name that it is given there is the right one.
            None => finding.fix(
                "curl -fLO \"$URL\"",
                Model::ask("\"${URL##*/}\"", ID),
                "rm \"${URL##*/}\"",
            ),
        },
        _ => {
            let new = model.beside("-new.gguf");
            finding.fix(whole(&new), Model::ask(&new, ID), format!("rm {new}"))
        }
    }
}
