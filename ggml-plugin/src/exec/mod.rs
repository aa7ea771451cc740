//! Running what the routing rules accepted. The NPU is behind [`Engine`]; whatever it cannot do
//! correctly is redone by the host's own CPU backend, so that the result is exactly the CPU's.

pub mod activation;
pub mod attention;
pub mod cache;
pub mod codes;
pub mod cpu;
pub mod crossover;
pub mod engine;
pub mod experts;
pub mod identity;
pub mod image;
pub mod meter;
pub mod mul_mat;
pub mod npu;
mod npu_attention;
pub mod parallel;
pub mod pressure;
pub mod product;
pub mod redo;
pub mod residency;
pub mod scale;
#[cfg(any(test, feature = "test-engine"))]
pub mod test_engine;
#[cfg(test)]
mod test_noise;
pub mod times;
pub mod verify;
pub mod weight;

pub use engine::{Attend, Attended, Done, Engine, MatMul, OpRecord, WeightKey};
pub use meter::{Meter, Reading};
pub use redo::Redo;
pub use times::{Holdings, Times};
