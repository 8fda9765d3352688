//! All attributes of dat_ia_query, under the standard's names.

use std::ffi::c_char;

use dat_sys::*;

use crate::Adapter;
use crate::adapter::{named, query, text};
use crate::address::Address;
use crate::error::Result;

/// All attributes of an adapter and its provider, field by field (uDAPL 2.0, dat_ia_query).
///
/// ```
/// let attributes = dat::Adapter::open("tcp-emu")?.standard_attributes()?;
/// for (name, value) in &attributes.adapter {
///     println!("{name}: {value:?}");
/// }
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandardAttributes {
    /// The fields of `DAT_IA_ATTR`, in order.
    pub adapter: Vec<(&'static str, Value)>,
    /// The fields of `DAT_PROVIDER_ATTR`, in order.
    pub provider: Vec<(&'static str, Value)>,
    /// Attributes of the transport.
    pub transport: Vec<(String, String)>,
    /// Attributes of the vendor.
    pub vendor: Vec<(String, String)>,
    /// Attributes of the provider.
    pub specific: Vec<(String, String)>,
}

/// The value of an attribute.
///
/// ```
/// use dat::Value;
///
/// let attributes = dat::Adapter::open("tcp-emu")?.standard_attributes()?;
/// let limit = attributes.adapter.iter().find(|(name, _)| *name == "max_eps");
/// assert!(matches!(limit, Some((_, Value::Number(1..)))));
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A limit, a size in bytes or a version.
    Number(u64),
    /// A name or an address.
    Text(String),
    /// `DAT_TRUE` or `DAT_FALSE`.
    Flag(bool),
    /// The names of the constants in an enumeration or mask.
    Words(Vec<&'static str>),
}

impl Adapter {
    /// Queries all attributes of dat_ia_query.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn standard_attributes(&self) -> Result<StandardAttributes> {
        let (ia, provider) = query(&self.interface)?;
        // SAFETY: the counts and arrays are the provider's own, and are valid while the IA is open.
        let list = |attributes, count| unsafe { named(attributes, count) };
        Ok(StandardAttributes {
            adapter: of_adapter(&ia),
            provider: of_provider(&provider),
            transport: list(ia.transport_attr, ia.num_transport_attr),
            vendor: list(ia.vendor_attr, ia.num_vendor_attr),
            specific: list(provider.provider_specific_attr, provider.num_provider_specific_attr),
        })
    }
}

/// Lists fields of a record, each with the function that converts its value.
macro_rules! fields {
    ($record:ident: $($field:ident => $value:path,)*) => {
        vec![$((stringify!($field), $value($record.$field))),*]
    };
}

fn of_adapter(ia: &DAT_IA_ATTR) -> Vec<(&'static str, Value)> {
    let address = |address| {
        // SAFETY: the pointer is null or an address of the provider, which is valid while the IA is
        // open.
        Value::Text(
            unsafe { Address::read(address) }
                .map_or_else(String::new, |address| address.to_string()),
        )
    };
    fields! { ia:
        adapter_name => name,
        vendor_name => name,
        hardware_version_major => number,
        hardware_version_minor => number,
        firmware_version_major => number,
        firmware_version_minor => number,
        ia_address_ptr => address,
        max_eps => count,
        max_dto_per_ep => count,
        max_rdma_read_per_ep_in => count,
        max_rdma_read_per_ep_out => count,
        max_evds => count,
        max_evd_qlen => count,
        max_iov_segments_per_dto => count,
        max_lmrs => count,
        max_lmr_block_size => number,
        max_lmr_virtual_address => number,
        max_pzs => count,
        max_message_size => number,
        max_rdma_size => number,
        max_rmrs => count,
        max_rmr_target_address => number,
        max_srqs => count,
        max_ep_per_srq => count,
        max_recv_per_srq => count,
        max_iov_segments_per_rdma_read => count,
        max_iov_segments_per_rdma_write => count,
        max_rdma_read_in => count,
        max_rdma_read_out => count,
        max_rdma_read_per_ep_in_guaranteed => flag,
        max_rdma_read_per_ep_out_guaranteed => flag,
        zb_supported => flag,
        extension_supported => extension,
        extension_version => count,
    }
}

fn of_provider(provider: &DAT_PROVIDER_ATTR) -> Vec<(&'static str, Value)> {
    fields! { provider:
        provider_name => name,
        provider_version_major => number,
        provider_version_minor => number,
        dapl_version_major => number,
        dapl_version_minor => number,
        lmr_mem_types_supported => memory_types,
        iov_ownership_on_return => iov_ownership,
        dat_qos_supported => qualities,
        completion_flags_supported => completion_flags,
        is_thread_safe => flag,
        max_private_data_size => count,
        supports_multipath => flag,
        ep_creator => ep_creator,
        pz_support => pz_support,
        optimal_buffer_alignment => number,
        evd_stream_merging_supported => streams,
        srq_supported => flag,
        srq_watermarks_supported => watermarks,
        srq_ep_pz_difference_supported => flag,
        srq_info_supported => srq_info,
        ep_recv_info_supported => recv_info,
        lmr_sync_req => flag,
        dto_async_return_guaranteed => flag,
        rdma_write_for_rdma_read_req => flag,
        rdma_read_lmr_rmr_context_exposure => flag,
        rmr_scope_supported => rmr_scopes,
        is_signal_safe => flag,
        ha_supported => flag,
        ha_loadbalancing => load_balancing,
    }
}

fn name(value: [c_char; DAT_NAME_MAX_LENGTH]) -> Value {
    Value::Text(text(&value))
}

fn number(value: impl Into<u64>) -> Value {
    Value::Number(value.into())
}

/// Converts a count. If a provider leaves an attribute undefined, it reports a negative count,
/// which becomes 0.
fn count(value: DAT_COUNT) -> Value {
    Value::Number(u64::try_from(value).unwrap_or(0))
}

fn flag(value: DAT_BOOLEAN) -> Value {
    Value::Flag(value != DAT_FALSE)
}

/// Converts an enumeration value to the name of its constant, without the common prefix.
macro_rules! choice {
    ($value:expr, $prefix:literal, $($constant:ident),+ $(,)?) => {
        match $value {
            $($constant => Value::Words(vec![name_without_prefix($prefix, stringify!($constant))]),)+
            other => Value::Number(other.into()),
        }
    };
}

/// Converts a mask to the names of its bits.
macro_rules! mask {
    ($value:expr, $prefix:literal, $($constant:ident),+ $(,)?) => {{
        let value = $value;
        let all = [$(($constant, stringify!($constant))),+];
        Value::Words(all.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| name_without_prefix($prefix, name)).collect())
    }};
}

fn name_without_prefix(prefix: &str, constant: &'static str) -> &'static str {
    let name_without_prefix = constant.strip_prefix(prefix).unwrap_or(constant);
    name_without_prefix.strip_suffix("_FLAG").unwrap_or(name_without_prefix)
}

/// Converts memory types. `DAT_MEM_TYPE_VIRTUAL` is 0, so every mask includes it.
fn memory_types(value: DAT_MEM_TYPE) -> Value {
    let Value::Words(others) =
        mask!(value, "DAT_MEM_TYPE_", DAT_MEM_TYPE_LMR, DAT_MEM_TYPE_SHARED_VIRTUAL)
    else {
        unreachable!()
    };
    Value::Words([vec!["VIRTUAL"], others].concat())
}

fn iov_ownership(value: DAT_IOV_OWNERSHIP) -> Value {
    choice!(value, "DAT_IOV_", DAT_IOV_CONSUMER, DAT_IOV_PROVIDER_NOMOD, DAT_IOV_PROVIDER_MOD)
}

/// Converts qualities of service. `DAT_QOS_BEST_EFFORT` is 0, so every mask includes it.
fn qualities(value: DAT_QOS) -> Value {
    let Value::Words(others) = mask!(
        value,
        "DAT_QOS_",
        DAT_QOS_HIGH_THROUGHPUT,
        DAT_QOS_LOW_LATENCY,
        DAT_QOS_ECONOMY,
        DAT_QOS_PREMIUM
    ) else {
        unreachable!()
    };
    Value::Words([vec!["BEST_EFFORT"], others].concat())
}

fn completion_flags(value: DAT_COMPLETION_FLAGS) -> Value {
    mask!(
        value,
        "DAT_COMPLETION_",
        DAT_COMPLETION_SUPPRESS_FLAG,
        DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_BARRIER_FENCE_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG
    )
}

fn ep_creator(value: DAT_EP_CREATOR_FOR_PSP) -> Value {
    choice!(
        value,
        "DAT_PSP_CREATES_EP_",
        DAT_PSP_CREATES_EP_NEVER,
        DAT_PSP_CREATES_EP_IFASKED,
        DAT_PSP_CREATES_EP_ALWAYS
    )
}

fn pz_support(value: DAT_PZ_SUPPORT) -> Value {
    choice!(value, "DAT_PZ_", DAT_PZ_UNIQUE, DAT_PZ_SHAREABLE)
}

fn rmr_scopes(value: DAT_RMR_SCOPE) -> Value {
    choice!(value, "DAT_RMR_SCOPE_", DAT_RMR_SCOPE_EP, DAT_RMR_SCOPE_PZ, DAT_RMR_SCOPE_ANY)
}

fn load_balancing(value: DAT_HA_LB) -> Value {
    choice!(value, "DAT_HA_LB_", DAT_HA_LB_NONE, DAT_HA_LB_INTERCOMM, DAT_HA_LB_INTRACOMM)
}

fn extension(value: DAT_EXTENSION) -> Value {
    choice!(value, "DAT_EXTENSION_", DAT_EXTENSION_NONE, DAT_EXTENSION_IB, DAT_EXTENSION_IW)
}

/// Converts a mask to the names of its bits. In this kind of mask, the standard uses only every
/// fourth bit: bits 0, 4, 8 and so on.
fn bits(value: DAT_COUNT, words: &[&'static str]) -> Value {
    let has = |(at, _): &(usize, &&str)| value >> (4 * at) & 1 != 0;
    Value::Words(
        words
            .iter()
            .enumerate()
            .filter(has)
            .map(|(_, name_without_prefix)| *name_without_prefix)
            .collect(),
    )
}

fn watermarks(value: DAT_COUNT) -> Value {
    bits(value, &["SRQ_LOW", "EP_SOFT_HIGH", "EP_HARD_HIGH"])
}

fn srq_info(value: DAT_COUNT) -> Value {
    bits(value, &["AVAILABLE_DTO_COUNT", "OUTSTANDING_DTO_COUNT"])
}

fn recv_info(value: DAT_COUNT) -> Value {
    bits(value, &["NUM_BUFFERS", "SPAN_LENGTH"])
}

/// The streams that may share an EVD: all of them, or pairs.
fn streams(value: [[DAT_BOOLEAN; STREAMS.len()]; STREAMS.len()]) -> Value {
    let pairs = (0..STREAMS.len()).flat_map(|a| (a + 1..STREAMS.len()).map(move |b| (a, b)));
    let merging: Vec<String> = pairs
        .clone()
        .filter(|&(a, b)| value[a][b] != DAT_FALSE)
        .map(|(a, b)| format!("{}+{}", STREAMS[a], STREAMS[b]))
        .collect();
    Value::Text(match merging.len() {
        n if n == pairs.count() => "all of them".to_owned(),
        _ => merging.join(" "),
    })
}

/// The rows and columns of `evd_stream_merging_supported`.
const STREAMS: [&str; 6] = ["software", "cr", "dto", "connection", "rmr_bind", "async"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_choices_are_in_the_standards_words() {
        assert_eq!(memory_types(0), Value::Words(vec!["VIRTUAL"]));
        assert_eq!(memory_types(3), Value::Words(vec!["VIRTUAL", "LMR", "SHARED_VIRTUAL"]));
        assert_eq!(completion_flags(3), Value::Words(vec!["SUPPRESS", "SOLICITED_WAIT"]));
        assert_eq!(qualities(8), Value::Words(vec!["BEST_EFFORT", "PREMIUM"]));
        assert_eq!(rmr_scopes(2), Value::Words(vec!["ANY"]));
        assert_eq!(
            rmr_scopes(77),
            Value::Number(77),
            "an undefined value must be shown as a number"
        );
        assert_eq!(watermarks(0x101), Value::Words(vec!["SRQ_LOW", "EP_HARD_HIGH"]));
        assert_eq!(srq_info(0), Value::Words(vec![]));
        assert_eq!(streams([[DAT_TRUE; 6]; 6]), Value::Text("all of them".to_owned()));
        let mut some = [[DAT_FALSE; 6]; 6];
        some[1][3] = DAT_TRUE;
        assert_eq!(streams(some), Value::Text("cr+connection".to_owned()));
    }

    #[test]
    fn every_field_of_the_records_is_told() {
        let adapter = Adapter::open("tcp-emu").expect("tcp-emu is built in");
        let all = adapter.standard_attributes().expect("the attributes can be queried");
        // The expected numbers are those of the fields of DAT_IA_ATTR and DAT_PROVIDER_ATTR,
        // without the counts and pointers of lists.
        assert_eq!((all.adapter.len(), all.provider.len()), (34, 29));
        let of = |name| {
            all.adapter.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
        };
        assert_eq!(of("max_eps"), Some(Value::Number(adapter.attributes().max_endpoints as u64)));
        assert_eq!(of("zb_supported"), Some(Value::Flag(true)));
        assert_eq!(all.transport, adapter.attributes().named);
    }
}
