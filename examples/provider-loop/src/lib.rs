//! A complete DAT provider to learn from. It transfers data through the memory of its process.
//! docs/writing-a-provider.md explains the code.
//!
//! | file | what |
//! |---|---|
//! | `lib` | the provider: from ia_params to an open adapter |
//! | `engine` | one open adapter: its queue pairs, listeners and pending connection requests |
//! | `link` | a queue pair and its connection |
//! | `message` | the wire: messages between adapters |
//!
//! Its adapters reach each other as long as they are open in one process. dat-core implements the
//! rules of DAT; rnic implements memory keys, queues and the protocol; `adapter` makes progress;
//! `dat-adapter` translates between `adapter` and dat-core.

mod engine;
mod link;
mod message;

use adapter::params::defaults;
use adapter::{Limits, no_resources};
use dat_adapter::{Adapter, Params, open_error};
use dat_core::OpenError;
use dat_core::export::AnyProvider;
use dat_core::provider::Provider;

use crate::engine::Engine;

// ANCHOR: provider
/// The provider, which opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loop;

impl Provider for Loop {
    type Transport = Adapter<Engine>;
    const NAME: &'static str = "loop";

    fn open(&self, ia: &str, params: &str) -> Result<Adapter<Engine>, OpenError> {
        // There is no socket whose packets could be captured, so `capture` is not among the keys.
        let keys = ["spin", "strict", "stats"];
        let no_other = |_: &str, _: &str| unreachable!("parse() reads these keys");
        let params = Params::parse(params, &defaults(), &keys, no_other)?;
        let limits = Limits {
            max_read_depth: 32,
            max_message: u32::MAX,
            max_datagram: None,
            max_private: 256,
            extended: true,
        };
        let transport = "iWARP in the memory of one process".to_owned();
        let named = vec![("transport".to_owned(), transport)];
        let ip = params.adapter.address.ip();
        let adapter = adapter::Adapter::open(ia, &params.adapter, limits, move |context| {
            Engine::new(context, ip).map_err(|e| {
                adapter::OpenError::new(no_resources(e), "no file descriptors are left".to_owned())
            })
        });
        Ok(Adapter::new(ia, adapter.map_err(open_error)?, &params, named))
    }
}

dat_core::export_provider!(AnyProvider::of::<Loop>());
// ANCHOR_END: provider
