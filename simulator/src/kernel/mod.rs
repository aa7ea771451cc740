//! What the driver does: buffers, address spaces, submission, queues, fences.

pub mod fence;
pub mod ioctl;
pub mod memory;
pub mod sched;
pub mod space;
pub mod submit;
