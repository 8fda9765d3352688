//! Providers in memory: loaded and initialised for their first IA, finished and unloaded after their last.

use std::ffi::{CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dat_sys::*;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::abi;
use crate::dynamic::{self, Interface, Table};
use crate::entry::{Entry, Shown};
use crate::list::Candidate;
use crate::report::{About, say};

/// Why the provider of an entry could not be brought in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// `dlopen` refused; its own words.
    #[error("{}", Shown(.0))]
    Open(String),
    /// The library lacks a function that every provider has.
    #[error("not a DAT provider: {}", Shown(.0))]
    Symbol(String),
    /// `dat_provider_init` came back and had registered nothing under the entry's key.
    #[error("its dat_provider_init did not register {0}{1}")]
    Silent(String, String),
    /// The IA parameters contain a NUL, which C cannot be handed.
    #[error("the IA parameters contain a NUL")]
    Parameters,
}

impl LoadError {
    /// Whether the library cannot be loaded. For any other reason the next entry of the name is not tried.
    pub(crate) fn is_not_loaded(&self) -> bool {
        matches!(self, LoadError::Open(_))
    }

    /// What to do about it, where that is known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            LoadError::Open(why) if why.contains("cannot open shared object file") => {
                Some("install what it belongs to, or give its full path in the entry")
            }
            LoadError::Open(_) | LoadError::Symbol(_) => {
                Some("the entry must name the library of a provider, built for this machine")
            }
            LoadError::Silent(..) | LoadError::Parameters => None,
        }
    }
}

/// A provider that stays loaded as long as this value exists.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) table: Table,
    pub(crate) interface: Interface,
    /// Which of the loaded; `None` for one that this registry did not load.
    id: Option<u64>,
}

impl Provider {
    /// A provider that registered itself and that its owner keeps loaded.
    pub(crate) fn foreign(table: Table, interface: Interface) -> Provider {
        Provider { table, interface, id: None }
    }
}

struct Loaded {
    id: u64,
    uses: usize,
    key: Key,
    table: Table,
    info: DAT_PROVIDER_INFO,
    /// Some vendors' libraries have none; the registries of others load them, too.
    fini: Option<DAT_PROVIDER_FINI_FUNC>,
    /// `None` for a built-in provider.
    library: Option<Library>,
}

/// What makes two entries share one initialised provider.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    interface: Interface,
    library: String,
    ia_params: String,
    /// Address of the built-in entry, 0 for a library.
    builtin: usize,
}

impl Key {
    fn new(candidate: &Candidate) -> Key {
        let Entry { ia_name, api, threadsafe, library, ia_params, .. } = &candidate.entry;
        Key {
            interface: Interface {
                name: ia_name.clone(),
                major: api.major,
                minor: api.minor,
                threadsafe: *threadsafe,
            },
            library: library.clone(),
            ia_params: ia_params.clone(),
            builtin: candidate.builtin.map_or(0, |builtin| std::ptr::from_ref(builtin).addr()),
        }
    }
}

#[derive(Default)]
struct Providers {
    loaded: Vec<Loaded>,
    last_id: u64,
}

/// Held over load, init, fini and unload, so that these never overlap. A provider must not open an IA from its
/// `dat_provider_init` or `dat_provider_fini`, nor does any.
fn providers() -> MutexGuard<'static, Providers> {
    static PROVIDERS: Mutex<Providers> = Mutex::new(Providers { loaded: Vec::new(), last_id: 0 });
    PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Brings in the provider of an entry, or counts one more use of it.
pub(crate) fn acquire(candidate: &Candidate) -> Result<Provider, LoadError> {
    let key = Key::new(candidate);
    let mut providers = providers();
    if let Some(loaded) = providers.loaded.iter_mut().find(|loaded| loaded.key == key) {
        loaded.uses += 1;
        return Ok(Provider { table: loaded.table, interface: key.interface, id: Some(loaded.id) });
    }
    providers.last_id += 1;
    let id = providers.last_id;
    let loaded = load(candidate, key, id)?;
    let provider =
        Provider { table: loaded.table, interface: loaded.key.interface.clone(), id: Some(id) };
    providers.loaded.push(loaded);
    Ok(provider)
}

fn load(candidate: &Candidate, key: Key, id: u64) -> Result<Loaded, LoadError> {
    let entry = &candidate.entry;
    let ia_params = CString::new(entry.ia_params.as_str()).map_err(|_| LoadError::Parameters)?;
    let (init, fini, library) = match candidate.builtin {
        Some(builtin) => (builtin.init, Some(builtin.fini), None),
        None => open_provider(&entry.library)?,
    };

    let info = key.interface.to_c();
    let serial = dynamic::serial();
    say(About::Library, format_args!("{}: starting {}", entry.origin, entry.library));
    // SAFETY: the provider's own function, with a complete info and a NUL-terminated string, both alive for the
    // call; providers copy what they keep.
    unsafe { init(&info, ia_params.as_ptr()) };
    let Some(table) = dynamic::registered_since(&key.interface, serial) else {
        if let Some(fini) = fini {
            // SAFETY: every init is followed by its fini, whatever it did.
            unsafe { fini(&info) };
        }
        let Interface { name, major, minor, .. } = &key.interface;
        return Err(LoadError::Silent(format!("{name} for u{major}.{minor}"), other_registry()));
    };
    Ok(Loaded { id, uses: 1, key, table, info, fini, library })
}

/// Loads a library, looks for the function that every provider has, calls none of them, and unloads it: for checks, in a process
/// that the library may end.
///
/// # Errors
///
/// It does not load, or is no provider.
pub fn inspect(library: &str) -> Result<(), LoadError> {
    open_provider(library).map(drop)
}

/// Starts the provider of an entry and ends it again, in a process that it may end: whether it registers what the entry says.
///
/// # Errors
///
/// As [`inspect`]; it registers nothing under the entry's name and version.
pub fn start(entry: &Entry) -> Result<(), LoadError> {
    acquire(&Candidate { entry: entry.clone(), builtin: None }).map(drop)
}

type Functions = (DAT_PROVIDER_INIT_FUNC, Option<DAT_PROVIDER_FINI_FUNC>, Option<Library>);

fn open_provider(name: &str) -> Result<Functions, LoadError> {
    let library = open_library(name)?;
    // SAFETY: a library that a registry file names as DAT provider exports these functions with these signatures; nothing could
    // check it. The second may be missing.
    let (init, fini) = unsafe {
        (
            symbol::<DAT_PROVIDER_INIT_FUNC>(&library, DAT_PROVIDER_INIT_FUNC_STR)?,
            symbol::<DAT_PROVIDER_FINI_FUNC>(&library, DAT_PROVIDER_FINI_FUNC_STR).ok(),
        )
    };
    Ok((init, fini, Some(library)))
}

fn open_library(name: &str) -> Result<Library, LoadError> {
    become_global();
    say(About::Library, format_args!("loading {name}"));
    // SAFETY: loading runs the library's constructors: what the registry file asks for.
    // RTLD_GLOBAL because providers are written for it: some load further libraries that look for their symbols.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|error| LoadError::Open(reason(&error)))
}

/// What the dynamic linker said; the error itself only names the function that failed.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// # Safety
///
/// `T` is the type of the function of that name.
unsafe fn symbol<T: Copy>(library: &Library, name: &std::ffi::CStr) -> Result<T, LoadError> {
    // SAFETY: the type, as the caller says.
    match unsafe { library.get::<T>(name) } {
        Ok(symbol) => Ok(*symbol),
        Err(error) => Err(LoadError::Symbol(reason(&error))),
    }
}

/// Puts the library that contains this code into the global scope.
///
/// Providers are not linked with a registry; they find `dat_registry_add_provider` and its kin in the global scope
/// when they are loaded. An application that opened us RTLD_LOCAL (as plug-in systems do) would break that.
fn become_global() {
    static DONE: OnceLock<Option<ManuallyDrop<Library>>> = OnceLock::new();
    DONE.get_or_init(|| {
        let (path, _) = whose(abi::add_provider as *const c_void)?;
        // SAFETY: nothing is loaded: RTLD_NOLOAD changes the scope of what is there. A program, as opposed to a
        // library, cannot be named here, and need not be: dlopen refuses, and that is ignored.
        let library =
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NOLOAD) }
                .ok()?;
        // Kept open: what is in the global scope has to stay.
        Some(ManuallyDrop::new(library))
    });
}

/// The file that contains an address, and where it is loaded.
fn whose(address: *const c_void) -> Option<(std::ffi::OsString, *mut c_void)> {
    use std::os::unix::ffi::OsStringExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills in what it is given.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: dladdr answered with the name of a loaded file, which lives as long as that is loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some((std::ffi::OsString::from_vec(name.to_bytes().to_vec()), info.dli_fbase))
}

/// A hint for a provider that registered elsewhere, or nowhere.
fn other_registry() -> String {
    // SAFETY: a lookup by name.
    let found = unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"dat_registry_add_provider".as_ptr().cast::<c_char>())
    };
    let ours = whose(abi::add_provider as *const c_void).map(|(_, base)| base);
    match whose(found) {
        None => "; this program does not export dat_registry_add_provider".into(),
        Some((file, base)) if Some(base) != ours => {
            format!("; {} comes first in this process with its own registry", file.display())
        }
        Some(_) => String::new(),
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut providers = providers();
        let Some(index) = providers.loaded.iter().position(|loaded| loaded.id == id) else {
            return;
        };
        providers.loaded[index].uses -= 1;
        if providers.loaded[index].uses == 0 {
            let loaded = providers.loaded.swap_remove(index);
            unload(loaded);
        }
    }
}

fn unload(loaded: Loaded) {
    say(About::Library, format_args!("finishing {}", loaded.key.library));
    if let Some(fini) = loaded.fini {
        // SAFETY: the provider's own function, once after its init, with no IA of it open.
        unsafe { fini(&loaded.info) };
    }
    // One that forgot to unregister would leave a table that is about to be unmapped.
    if dynamic::remove(loaded.table, &loaded.key.interface).is_ok() {
        say(About::Library, format_args!("{} had not unregistered", loaded.key.library));
    }
    if let Some(library) = loaded.library
        && let Err(error) = library.close()
    {
        say(About::Library, format_args!("unloading {}: {}", loaded.key.library, reason(&error)));
    }
}
