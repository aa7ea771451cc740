//! Forecasts of hand-written heads: sums, cases, and what a person sees.

use super::graph::{self, Node};
use super::groups::{by_op, by_type};
use super::plan::{Place, Work};
use super::text::View;
use super::{Cpu, Cut, Forecast, Settings, Soc, advise, json, of_board, size, text};
use crate::model::write::{Gguf, llama, whisper};
use crate::model::{Header, parse};
use ggml_rocket::knobs::Knobs;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

const GIB: u64 = 1 << 30;

/// Of a file that need not be there.
fn header(of: &Gguf) -> Header {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    of.write(&path);
    crate::model::open(&path).unwrap()
}

fn settings() -> Settings {
    Settings {
        cut: Cut { prompt: 512, ubatch: 512, flash: true, beams: 5 },
        repack: false,
        cpu: Cpu::Dotprod,
        soc: Soc::Rk3588,
        memory: Some(of_board(16 * GIB)),
        knobs: Knobs::read(|_| None),
    }
}

fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut s = settings();
    change(&mut s);
    s
}

/// Ops and MACs by op, type, K, N, rows, and what becomes of them.
fn seen(f: &Forecast) -> Vec<(String, u64, u64)> {
    let name = |s: &super::plan::Shape| {
        format!("{} {} {}x{} m{} {}", s.op, s.weight_type, s.k, s.n, s.rows, s.outcome)
    };
    f.prefill.iter().map(|(s, w)| (name(s), w.ops, w.macs)).collect()
}

fn rows(list: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    list.iter().map(|(name, ops, macs)| ((*name).to_owned(), *ops, *macs)).collect()
}

const F16: u32 = 1;
const Q8_0: u32 = 8;
const Q4_K: u32 = 12;
const Q6_K: u32 = 14;
const MXFP4: u32 = 39;

/// A prompt in two micro-batches, by hand: of 700 tokens 512 and 188, and of those the last block's
/// feed-forward part and the head see one row.
#[test]
fn a_prompt_is_cut_as_hosts_cut_it() {
    let h = header(&llama(2, &[F16]));
    let f = Forecast::of(&h, &with(|s| s.cut.prompt = 700));
    let mut want = rows(&[
        // Over 512 positions, then over 768: what 700 need in steps of 256.
        ("FLASH_ATTN_EXT f16 64x512 m512 attention_short_context", 2, 2 * 32 * 512 * 512 * 128),
        ("FLASH_ATTN_EXT f16 64x768 m188 attention_short_context", 2, 2 * 32 * 188 * 768 * 128),
        ("MUL_MAT f16 2048x256 m188 fp16", 4, 4 * 2048 * 256 * 188),
        ("MUL_MAT f16 2048x256 m512 fp16", 4, 4 * 2048 * 256 * 512),
        ("MUL_MAT f16 2048x2048 m188 fp16", 4, 4 * 2048 * 2048 * 188),
        ("MUL_MAT f16 2048x2048 m512 fp16", 4, 4 * 2048 * 2048 * 512),
        ("MUL_MAT f16 2048x5632 m1 too_few_rows", 2, 2 * 2048 * 5632),
        ("MUL_MAT f16 2048x5632 m188 fp16", 2, 2 * 2048 * 5632 * 188),
        ("MUL_MAT f16 2048x5632 m512 fp16", 2, 2 * 2048 * 5632 * 512),
        ("MUL_MAT f16 2048x32000 m1 too_few_rows", 1, 2048 * 32000),
        ("MUL_MAT f16 5632x2048 m1 too_few_rows", 1, 5632 * 2048),
        ("MUL_MAT f16 5632x2048 m188 fp16", 1, 5632 * 2048 * 188),
        ("MUL_MAT f16 5632x2048 m512 fp16", 1, 5632 * 2048 * 512),
    ]);
    let mut got = seen(&f);
    want.sort();
    got.sort();
    assert_eq!(got, want);
    // Long enough for attention, in either form.
    let long = |flash| {
        let f = Forecast::of(&h, &with(|s| s.cut = Cut { prompt: 1024, flash, ..s.cut }));
        seen(&f).into_iter().map(|(name, ops, _)| format!("{name} {ops}")).collect::<Vec<_>>()
    };
    assert!(long(true).contains(&"FLASH_ATTN_EXT f16 64x1024 m512 attention 2".to_owned()));
    let off = long(false);
    for want in [
        // K and V of four heads against 32 heads of queries, in both micro-batches.
        "MUL_MAT f16 64x1024 m16384 weight_not_leaf 2",
        "MUL_MAT f16 1024x64 m16384 weight_not_leaf 2",
        "MUL_MAT f16 64x512 m16384 weight_not_leaf 2",
    ] {
        assert!(off.contains(&want.to_owned()), "{want}: {off:#?}");
    }
    assert!(f.decode.keys().all(|s| s.place == Place::Cpu));
}

/// A19: every type with its count, bytes and part, in two files.
#[test]
fn mixed_types_have_a_row_each() {
    // 362 f32, 150 f16 and 215 q8_0.
    let mut g = Gguf::new("gemma3n")
        .number("gemma3n.block_count", 30)
        .number("gemma3n.embedding_length", 2048)
        .number("gemma3n.attention.head_count", 8);
    for i in 0..30 {
        g = g.tensor(format!("blk.{i}.attn_q.weight"), &[2048, 2048], Q8_0);
        for part in ["inp_gate", "proj", "altup_router", "laurel_l", "laurel_r"] {
            g = g.tensor(format!("blk.{i}.{part}.weight"), &[2048, 64], F16);
        }
        for j in 0..6 {
            g = g.tensor(format!("blk.{i}.extra{j}.weight"), &[2048, 128], Q8_0);
        }
        for j in 0..12 {
            g = g.tensor(format!("blk.{i}.norm{j}.weight"), &[2048], 0);
        }
    }
    for i in 0..5 {
        g = g.tensor(format!("blk.29.more{i}.weight"), &[64, 64], Q8_0);
    }
    g = g.tensor("output_norm.weight", &[2048], 0).tensor("rope", &[7], 0);
    let h = header(&g);
    let f = Forecast::of(&h, &settings());
    let types = by_type(&h, &f);
    let by = |name: &str| types.iter().find(|t| t.name == name).unwrap();
    let counts = ["f32", "f16", "q8_0"].map(|n| (by(n).tensors, by(n).bytes.unwrap()));
    let q8 = (30 * 2048 * 2048 + 180 * 2048 * 128 + 5 * 64 * 64) / 32 * 34;
    assert_eq!(counts, [(362, 361 * 2048 * 4 + 28), (150, 150 * 2048 * 64 * 2), (215, q8)]);
    assert_eq!(by("q8_0").outcomes, BTreeMap::from([("fp16", 215)]));
    assert_eq!((by("f16").all.ops, by("f32").all.ops), (150, 0));
    assert!(by("q8_0").all.macs > by("f16").all.macs);

    // Another one, the other way round, with the rows that the small part lacks.
    let h = header(&llama(3, &[Q4_K, Q6_K, 0]));
    let f = Forecast::of(&h, &with(|s| s.cut = Cut { prompt: 64, ubatch: 64, ..s.cut }));
    let types = by_type(&h, &f);
    let by = |name: &str| types.iter().find(|t| t.name == name).unwrap();
    assert_eq!(["f32", "q4_K", "q6_K"].map(|n| by(n).tensors), [7 + 1 + 7, 1 + 7, 7]);
    // Quantized ones want 128 rows.
    assert_eq!([by("q4_K").npu.ops, by("q6_K").npu.ops], [0, 0]);
    assert!(by("f32").npu.ops > 0 && by("f32").npu.macs < by("f32").all.macs);
}

/// A16: what a host packs never reaches the NPU, by the types of its CPU.
#[test]
fn repack_takes_what_the_cpu_packs() {
    let quantized = |kinds: &[u32], cpu| {
        let h = header(&llama(2, kinds));
        let f = Forecast::of(&h, &with(|s| (s.repack, s.cpu) = (true, cpu)));
        let types = by_type(&h, &f);
        let npu = types.iter().filter(|t| t.name.starts_with('q')).map(|t| t.npu.ops).sum::<u64>();
        let plain = Forecast::of(&h, &with(|s| s.cpu = cpu));
        assert!(plain.repacked == 0 && plain.share() > 90.0);
        let away = by_op(&f)
            .iter()
            .filter_map(|g| g.outcomes.get("weight_not_in_host_memory"))
            .sum::<u64>();
        (npu, away, advise(&h, Path::new("m.gguf"), &settings()).line().contains(" -nr "))
    };
    // Of a board all, and with the flag that keeps them: seven a block, and the head.
    assert_eq!(quantized(&[Q4_K, Q6_K], Cpu::Dotprod), (0, 15, true));
    assert_eq!(quantized(&[Q8_0], Cpu::Dotprod), (0, 15, true));
    // Q5_0 is packed nowhere; on x86-64 neither are Q8_0 and Q6_K.
    assert_eq!(quantized(&[6], Cpu::Dotprod).1, 0);
    assert_eq!(quantized(&[Q8_0, Q6_K], Cpu::Avx2).1, 0);
    assert_eq!(quantized(&[Q8_0], Cpu::Plain).1, 0);
    // F16 never is, and needs no flag.
    let h = header(&llama(2, &[F16]));
    assert_eq!(Forecast::of(&h, &with(|s| s.repack = true)).repacked, 0);
    assert!(!advise(&h, Path::new("m.gguf"), &settings()).line().contains("-nr"));
    // Rows that are no multiple of what is packed together stay plain.
    let odd = llama(1, &[F16]).tensor("blk.0.x.weight", &[256, 100], Q4_K).tensor(
        "blk.0.y.weight",
        &[256, 104],
        Q4_K,
    );
    assert_eq!(Forecast::of(&header(&odd), &with(|s| s.repack = true)).repacked, 1);
}

/// A15: 4304 is no multiple of 32, and goes to the NPU all the same.
#[test]
fn siglip_runs_with_padding() {
    for (image, patches, flash) in [(378, 729, true), (224, 256, false)] {
        let mut g = Gguf::new("clip").text("clip.projector_type", "idefics3");
        for (key, n) in [
            ("image_size", image),
            ("patch_size", 14),
            ("embedding_length", 1152),
            ("block_count", 2),
        ] {
            g = g.number(&format!("clip.vision.{key}"), n);
        }
        g = g
            .number("clip.vision.attention.head_count", 16)
            .number("clip.vision.projector.scale_factor", 3);
        g = g.tensor("v.patch_embd.weight", &[14, 14, 3, 1152], F16);
        for i in 0..2 {
            g = g.tensor(format!("v.blk.{i}.ffn_up.weight"), &[1152, 4304], F16);
            g = g.tensor(format!("v.blk.{i}.ffn_down.weight"), &[4304, 1152], F16);
        }
        let g = g.tensor("mm.model.fc.weight", &[10368, 2048], Q8_0);
        // A projector's weights are never packed by the host.
        let f = Forecast::of(&header(&g), &with(|s| (s.repack, s.cut.flash) = (true, flash)));
        let seen: Vec<String> =
            seen(&f).into_iter().map(|(name, ops, _)| format!("{name} {ops}")).collect();
        assert!(seen.contains(&format!("MUL_MAT f16 4304x1152 m{patches} fp16 2")), "{seen:#?}");
        assert!(
            seen.contains(&format!("MUL_MAT f16 588x{patches} m1152 weight_not_leaf 1")),
            "{seen:#?}"
        );
        let attention = if flash { "attention_unmasked 2" } else { "weight_not_leaf 2" };
        assert!(seen.iter().any(|s| s.ends_with(attention)), "{seen:#?}");
        let fc = if patches == 729 { "m81 too_few_rows" } else { "m28 too_few_rows" };
        assert!(seen.contains(&format!("MUL_MAT q8_0 10368x2048 {fc} 1")), "{seen:#?}");
        assert_eq!((f.unit, f.repacked), ("patches", 0));
    }
}

fn base_whisper(kind: u32) -> Header {
    let mut list: Vec<(String, [i32; 2])> = Vec::new();
    for i in 0..2 {
        for part in ["attn.query", "attn.key", "attn.value", "attn.out"] {
            list.push((format!("encoder.blocks.{i}.{part}.weight"), [512, 512]));
            list.push((format!("decoder.blocks.{i}.{part}.weight"), [512, 512]));
            list.push((format!("decoder.blocks.{i}.cross_{part}.weight"), [512, 512]));
        }
        for half in ["encoder", "decoder"] {
            list.push((format!("{half}.blocks.{i}.mlp.0.weight"), [512, 2048]));
            list.push((format!("{half}.blocks.{i}.mlp.2.weight"), [2048, 512]));
        }
    }
    let tensors: Vec<(&str, &[i32], u32)> =
        list.iter().map(|(n, s)| (n.as_str(), &s[..], kind)).collect();
    let file = whisper([51865, 1500, 512, 8, 2, 448, 512, 8, 2, 80, 1], &tensors);
    parse(Cursor::new(file)).unwrap()
}

/// A17: the encoder has rows enough, a decoder's beams have not.
#[test]
fn beams_are_few_rows() {
    for (beams, kind) in [(5, F16), (8, Q8_0)] {
        let h = base_whisper(kind);
        let f = Forecast::of(&h, &with(|s| s.cut.beams = beams));
        let routed: u64 =
            f.prefill.iter().filter(|(s, _)| s.outcome == "fp16").map(|(_, w)| w.ops).sum();
        // Six a block of the encoder, and the cross attention's keys and values.
        assert_eq!(routed, 2 * 6 + 2 * 2);
        assert!(f.prefill.keys().filter(|s| s.outcome == "fp16").all(|s| s.rows == 1500));
        let stored: Vec<_> = f.decode.iter().filter(|(s, _)| s.stored).collect();
        assert!(stored.iter().all(|(s, _)| (s.outcome, s.rows) == ("too_few_rows", beams as i64)));
        // Of a block of the decoder ten, less the two that ran with the encoder.
        assert_eq!(stored.iter().map(|(_, w)| w.ops).sum::<u64>(), 2 * 8);
    }
    let quantized = Forecast::of(&base_whisper(Q8_0), &with(|s| s.repack = true));
    assert_eq!(quantized.prefill.keys().filter(|s| s.stored && s.place == Place::Npu).count(), 0);
    assert!(
        advise(&base_whisper(Q8_0), Path::new("w.bin"), &settings()).notes[0].contains("no switch")
    );
}

fn oss(layers: u64) -> Gguf {
    let mut g = Gguf::new("gpt-oss");
    for (key, n) in [
        ("block_count", layers as u32),
        ("embedding_length", 2880),
        ("expert_count", 32),
        ("expert_used_count", 4),
        ("attention.head_count", 64),
        ("attention.head_count_kv", 8),
        ("attention.key_length", 64),
        ("attention.value_length", 64),
        ("attention.sliding_window", 128),
    ] {
        g = g.number(&format!("gpt-oss.{key}"), n);
    }
    for i in 0..layers {
        g = g.tensor(format!("blk.{i}.attn_q.weight"), &[2880, 4096], Q8_0);
        g = g.tensor(format!("blk.{i}.attn_sinks.weight"), &[64], 0);
        g = g.tensor(format!("blk.{i}.ffn_gate_inp.weight"), &[2880, 32], 0);
        for part in ["gate", "up", "down"] {
            g = g.tensor(format!("blk.{i}.ffn_{part}_exps.weight"), &[2880, 2880, 32], MXFP4);
        }
    }
    g.tensor("output.weight", &[2880, 201_088], Q8_0)
}

/// A18: rows of an expert and room for whole stacks decide.
#[test]
fn experts_want_rows_and_room() {
    let h = header(&oss(24));
    let outcomes = |s: &Settings| {
        let mut all = BTreeMap::new();
        for (shape, work) in Forecast::of(&h, s).prefill {
            if shape.op == "MUL_MAT_ID" {
                *all.entry(shape.outcome).or_insert(0) += work.ops;
            }
        }
        all
    };
    // One row of the last block's: as the logits want it.
    let few = |n: u64| ("experts_few_tokens", n);
    let on = |s: &mut Settings, prompt, gib: u64| {
        s.cut = Cut { prompt, ubatch: prompt, ..s.cut };
        s.memory = Some(of_board(gib * GIB));
    };
    assert_eq!(outcomes(&with(|s| on(s, 256, 64))), BTreeMap::from([few(72)]));
    // Of 64 rows an expert each has enough, all of 72 stacks have not room: 5 windows of 3.5 GiB.
    let all = outcomes(&with(|s| on(s, 512, 64)));
    assert_eq!(
        all.get("experts-int8").copied().unwrap_or(0)
            + all.get("experts_no_room").copied().unwrap_or(0),
        69
    );
    let f = Forecast::of(&h, &with(|s| on(s, 512, 16)));
    // 15 GiB available, less 6: by 1.54 bytes an element of 32 experts.
    let stack = 1.54 * 2880.0 * 2880.0 * 32.0;
    let fit = (9.0 * GIB as f64 / stack) as u64;
    assert_eq!((f.plan.stacks, f.plan.stacks_resident), (72, fit));
    let words = shown(&h, &with(|s| on(s, 512, 16)));
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("{fit} of 72 stacks of experts have room (32 %")), "{words}");
    // Off, and forced.
    let knob =
        |value: &'static str| Knobs::read(move |n| (n == "ROCKET_MOE").then(|| value.into()));
    let off = with(|s| {
        on(s, 512, 64);
        s.knobs = knob("0");
    });
    assert_eq!(outcomes(&off), BTreeMap::from([("experts_off", 72)]));
    let forced = with(|s| {
        on(s, 512, 8);
        s.knobs = knob("1");
    });
    assert_eq!(outcomes(&forced), BTreeMap::from([few(3), ("experts-int8", 69)]));
    // Every other layer attends to a window: its cache holds that and one micro-batch.
    let f = Forecast::of(&h, &with(|s| s.cut = Cut { prompt: 2048, ubatch: 512, ..s.cut }));
    let last: BTreeMap<i64, u64> = f
        .prefill
        .iter()
        .filter(|(s, _)| s.op == "FLASH_ATTN_EXT")
        .map(|(s, w)| (s.n, w.ops))
        .collect();
    assert_eq!(last, BTreeMap::from([(512, 24), (768, 36), (1024, 12), (1536, 12), (2048, 12)]));
}

/// The part that has no route.
#[test]
fn an_rk3576_is_the_cpus() {
    let h = header(&llama(1, &[F16]));
    let s = with(|s| s.soc = Soc::Rk3576);
    let f = Forecast::of(&h, &s);
    assert!(f.share() == 0.0 && f.prefill.keys().all(|s| s.outcome == "no_engine"));
    let words = shown(&h, &s);
    assert!(words.contains("no RK3576") && words.contains("ROCKET_INT8=1"), "{words}");
}

/// What stays: as much as memory, windows and settings leave.
#[test]
fn weights_stay_while_there_is_room() {
    let h = header(&llama(40, &[F16]));
    let all = 40 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 5632) * 2 - 3 * 2048 * 5632 * 2;
    let plan = |gib: u64, knobs: &'static [(&'static str, &'static str)]| {
        let get =
            move |name: &str| knobs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into());
        Forecast::of(
            &h,
            &with(|s| (s.memory, s.knobs) = (Some(of_board(gib * GIB)), Knobs::read(get))),
        )
        .plan
    };
    let whole = plan(16, &[]);
    assert_eq!(
        (whole.weights, whole.resident, whole.bytes, whole.resident_bytes),
        (277, 277, all, all)
    );
    assert!(whole.is_whole() && whole.why.is_none());
    // 7 GiB available of 8; a quarter of the machine and a quarter of that stay free: 4.5 GiB.
    let part = plan(6, &[]);
    assert!(part.resident < 277 && part.resident_bytes <= 5 * GIB - 15 * GIB / 8, "{part:?}");
    assert!(
        part.resident_bytes > 5 * GIB - 15 * GIB / 8 - (32 << 20) && part.why.is_some(),
        "{part:?}"
    );
    let cache = plan(16, &[("ROCKET_CACHE_MB", "100")]);
    assert!(cache.resident_bytes <= 100 << 20 && cache.why.unwrap().contains("ROCKET_CACHE_MB"));
    assert_eq!(plan(16, &[("ROCKET_NO_PREPACK", "1")]).resident, 0);
    let window = plan(64, &[("ROCKET_N_THREADS", "1")]);
    assert_eq!((window.window_bytes, window.is_whole()), (7 * GIB / 2, all <= 7 * GIB / 2));
    // Quantized: in int8 where that fits and F16 does not.
    let h = header(&llama(40, &[Q8_0]));
    let int8 =
        |gib: u64| Forecast::of(&h, &with(|s| s.memory = Some(of_board(gib * GIB)))).plan.int8;
    assert_eq!([4, 5, 16].map(int8), [true, true, false]);
}

fn shown(h: &Header, s: &Settings) -> String {
    let forecast = Forecast::of(h, s);
    let path = Path::new("models/my model.gguf");
    let advice = advise(h, path, s);
    let view = View {
        path,
        header: h,
        settings: s,
        forecast: &forecast,
        advice: &advice,
        source: "--ram",
    };
    let value = json::of(&view);
    assert_eq!(value["totals"]["macs"], forecast.totals()[0].macs);
    let words = text::of(&view, false);
    for line in words.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(words.contains("modelled"));
    // It can be pasted.
    let command = words.split("(modelled):\n").nth(1).unwrap();
    let parsed = std::process::Command::new("sh").args(["-n", "-c", command]).status().unwrap();
    assert!(parsed.success(), "{command}");
    words
}

#[test]
fn what_a_person_sees() {
    insta::assert_snapshot!(
        "llama",
        shown(&header(&llama(4, &[Q4_K, Q6_K])), &with(|s| s.repack = true))
    );
    insta::assert_snapshot!(
        "llama-plain",
        shown(&header(&llama(4, &[Q4_K, Q6_K])), &with(|s| s.cut.prompt = 1500))
    );
    insta::assert_snapshot!("oss", shown(&header(&oss(24)), &settings()));
    insta::assert_snapshot!("whisper", shown(&base_whisper(F16), &settings()));
    let unknown =
        Gguf::new("novel").tensor("blk.0.attn_q.weight", &[64, 64], F16).tensor("x", &[4], 0);
    insta::assert_snapshot!("unknown", shown(&header(&unknown), &with(|s| s.memory = None)));
}

/// A block's number is a name's part, and no count of anything.
#[test]
fn blocks_may_have_any_number() {
    for name in ["blk.18446744073709551615", "blk.4000000000", "v.blk.9999999999999999999"] {
        for arch in ["llama", "clip", "novel"] {
            let g = Gguf::new(arch).number(&format!("{arch}.attention.head_count"), 1);
            let g = g.number("clip.vision.image_size", 28).number("clip.vision.patch_size", 14);
            let g = g.number("clip.vision.embedding_length", 64);
            let g = g.tensor(format!("{name}.attn_q.weight"), &[64, 64], F16);
            let begun = std::time::Instant::now();
            super::adds_up(&header(&g));
            assert!(begun.elapsed().as_secs() < 2, "{name}");
        }
    }
}

/// The first part is what a host takes.
#[test]
fn a_command_names_the_first_part() {
    let h = Header { parts: 3, ..header(&llama(1, &[F16])) };
    let line = advise(&h, Path::new("a/m-00002-of-00003.gguf"), &settings()).line();
    assert!(line.contains(" -m a/m-00001-of-00003.gguf "), "{line}");
    // Words of a shell, whatever the file is called.
    for (name, word) in [("it's.gguf", r"'it'\''s.gguf'"), ("-x.gguf", "./-x.gguf"), ("", "''")] {
        assert_eq!(super::quoted(name), word);
    }
}

#[test]
fn sizes_are_read() {
    assert_eq!([size("16G"), size("8192M"), size("1gib")], [Ok(16 * GIB), Ok(8 * GIB), Ok(GIB)]);
    for bad in ["", "16", "G", "-1G", "1.5G", "99999999999999999999G", "1M", "16T"] {
        assert!(size(bad).is_err(), "{bad}");
    }
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let cut = (1u64..5000, 1u64..3000, any::<bool>(), 1u64..64);
    let cpus =
        prop_oneof![Just(Cpu::Dotprod), Just(Cpu::Avx2), Just(Cpu::Avx512), Just(Cpu::Plain)];
    (cut, any::<bool>(), cpus, proptest::option::of(1u64..64), any::<bool>()).prop_map(
        |((prompt, ubatch, flash, beams), repack, cpu, gib, driven)| Settings {
            cut: Cut { prompt, ubatch, flash, beams },
            repack,
            cpu,
            soc: if driven { Soc::Rk3588 } else { Soc::Rk3576 },
            memory: gib.map(|n| of_board(n * GIB)),
            knobs: Knobs::read(|_| None),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Sums over types, over ops and over places are the whole, which is the graph's own.
    #[test]
    fn totals_add_up(s in any_settings(), kinds in proptest::collection::vec(prop_oneof![Just(0u32), Just(1), Just(2), Just(8), Just(12), Just(14)], 1..5), layers in 1u64..4) {
        let h = header(&llama(layers, &kinds));
        let f = Forecast::of(&h, &s);
        let sum = |list: Vec<Work>| list.into_iter().fold(Work::default(), |mut a, b| { a.add(b); a });
        let [all, npu] = f.totals();
        for groups in [by_type(&h, &f), by_op(&f)] {
            prop_assert_eq!(sum(groups.iter().map(|g| g.all).collect()), all);
            prop_assert_eq!(sum(groups.iter().map(|g| g.npu).collect()), npu);
            for g in &groups {
                prop_assert_eq!(g.outcomes.values().sum::<u64>(), g.all.ops);
                prop_assert!(g.npu.macs <= g.all.macs);
            }
        }
        let nodes = graph::of(&h, s.cut).prefill;
        prop_assert_eq!(nodes.iter().map(Node::macs).sum::<u64>(), all.macs);
        prop_assert_eq!(nodes.iter().map(|n| n.times).sum::<u64>(), all.ops);
        // By hand: each matrix once a token, but for the last block's feed-forward part and the head.
        let (prompt, last) = (s.cut.prompt, 3 * 2048 * 5632);
        let block = 2 * 2048 * 2048 + 2 * 2048 * 256 + last;
        let products = prompt * (layers * block - last) + last + 2048 * 32000;
        let stored: u64 = f.prefill.iter().filter(|(shape, _)| shape.stored).map(|(_, w)| w.macs).sum();
        let ubatch = s.cut.ubatch.min(prompt);
        // Each micro-batch but the last wants nothing of these.
        prop_assert_eq!(stored, products, "{} of {}", prompt, ubatch);
        let tensors = by_type(&h, &f).iter().map(|g| g.tensors).sum::<u64>();
        prop_assert_eq!(tensors as usize, h.tensors.len());
    }

    /// No file and no settings bring it down.
    #[test]
    fn no_header_harms(s in any_settings(), numbers in proptest::collection::vec(any::<u32>(), 12), ne in proptest::collection::vec(any::<u16>(), 8), arch in 0usize..5) {
        let arch = ["llama", "gpt-oss", "clip", "bert", "novel"][arch];
        let keys = ["block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.sliding_window", "expert_used_count", "vision.image_size", "vision.patch_size", "vision.attention.head_count", "vision.projector.scale_factor"];
        let mut g = Gguf::new(arch);
        for (key, n) in keys.iter().zip(&numbers) {
            g = g.number(&format!("{arch}.{key}"), *n);
        }
        let ne: Vec<u64> = ne.iter().map(|n| u64::from(*n % 4096)).collect();
        g = g.tensor("blk.0.attn_q.weight", &ne[..2], 1).tensor("blk.9.ffn_up_exps.weight", &ne[..3], 1);
        g = g.tensor("v.blk.3.attn_q.weight", &ne[..2], 1).tensor("output.weight", &ne[2..4], 0);
        let (head, _) = g.head();
        let mut file = head;
        file.resize(file.len() + 64, 0);
        // Its data are not there; sizes are what matters.
        let path = tempfile::NamedTempFile::new().unwrap();
        g.write(path.path());
        let h = crate::model::open(path.path()).unwrap();
        shown(&h, &s);
    }
}
