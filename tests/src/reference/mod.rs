//! The published host library for this NPU, as far as the notes tell what it does: its tile
//! sequences, and a replay of them as real driver jobs, so that what a board counts for it can be
//! set beside what it counts for ours.
//!
//! [`Sequence`] is the order of tasks (npu-rk3588 7.2, 7.3, offsets as in 3.7), built from the
//! notes or read from a recorded run; [`replay`] runs one on each worker's file.
//!
//! # What the notes leave open
//!
//! Each point is read in the reference's favour:
//!
//! | point | section | reading |
//! |---|---|---|
//! | reuse mode of on-chip summation | 4.3, 7.3 | of data and weight reuse the one that fetches less, data when equal |
//! | one K step in fp16: is on-chip summation "applicable"? | 7.3 | yes, so that its reuse bits are set |
//! | plan of resident bf16 and tf32 weights | 7.5, 7.10 | made for the call's own M; fp16, int8 and int4 as written, at 256 rows |
//! | an fp16 call that its resident weights do not serve | 7.5 | streams, with a plan of its own |
//! | Nt of group-wise int4 | 7.6 | as plain int4's |
//! | how large objects are | 3.7, 8.4 | each holds the slots of its own job and the tail, no more |
//! | programs | 1.4 | those of a whole call lie in one object that is flushed once |
//! | a job's outputs before it runs | | neither cleared nor flushed |
//! | objects flushed a call | 8.4 | features and programs, and weights when they are streamed |
//! | K steps of on-chip summation | 6.4, 7.3, 8.4 | a SUBMIT each, its output waited for, since 6.4 orders them by completion and 8.4 has a sync "per K-step"; [`Waits::Last`] queues them in one SUBMIT and waits once |
//! | results that are waited for | 8.4 | one PREP a job, on its output object, which is read then |
//! | scaling of groups, padding of M | 7.1, 7.6 | on the host, free |

mod kind;
mod recorded;
mod replay;
mod sequence;
mod values;

pub use kind::{Kind, Share, split};
pub use replay::{Data, Residency, Waits, replay};
pub use sequence::{Job, Place, Sequence, Task};
