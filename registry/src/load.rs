//! Loads and initialises a provider for its first IA, and finalises and unloads it after its last
//! IA.

use std::ffi::{CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use dat_sys::*;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use telemetry::{Category, report};

use crate::abi;
use crate::dynamic::{self, FunctionTable, Interface};
use crate::entry::{Entry, Excerpt, Origin};
use crate::list::{Builtin, Candidate};
use crate::signal_lock::{SignalGuard, lock};
use crate::status::Status;

/// The reason for which the provider of an entry could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// `dlopen` failed, with this message.
    #[error("{}", Excerpt(.0))]
    Open(String),
    /// The library lacks a function that every provider must have.
    #[error("not a DAT provider: {}", Excerpt(.0))]
    Symbol(String),
    /// `dat_provider_init` returned without registering the entry's key. The second field of this
    /// variant is a hint.
    #[error("its dat_provider_init did not register {0}{1}")]
    NotRegistered(String, String),
    /// The function table of a built-in provider cannot be registered; the reason.
    #[error("its function table cannot be registered: {0}")]
    NotAdded(String),
    /// The IA parameters contain a NUL, so they cannot be passed to C.
    #[error("the IA parameters contain a NUL")]
    Parameters,
    /// The provider of the entry is being started or finished by this thread, which has now opened
    /// an IA of the same entry.
    #[error("its dat_provider_init or dat_provider_fini opens an IA of the provider itself")]
    OpensItself,
}

impl LoadError {
    /// Whether the library could not be loaded. Only in that case does the registry try the next
    /// entry of the same name.
    pub(crate) fn is_not_loaded(&self) -> bool {
        matches!(self, LoadError::Open(_))
    }

    /// The remedy for the user, if one is known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            LoadError::Open(why) if why.contains("cannot open shared object file") => {
                Some("install the package that contains it, or give its full path in the entry")
            }
            LoadError::Open(_) | LoadError::Symbol(_) => {
                Some("the entry must name the library of a provider, built for this machine")
            }
            _ => None,
        }
    }
}

/// A reference to a provider. The provider stays loaded as long as a reference exists.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) table: FunctionTable,
    pub(crate) interface: Interface,
    /// The number of the loaded provider. `None` for a provider that this registry did not load.
    id: Option<u64>,
}

impl Provider {
    /// A provider that has registered itself. The owner of its code keeps it loaded.
    pub(crate) fn foreign(table: FunctionTable, interface: Interface) -> Provider {
        Provider { table, interface, id: None }
    }
}

struct Loaded {
    id: u64,
    use_count: usize,
    key: ProviderKey,
    table: FunctionTable,
    arguments: Box<Arguments>,
    /// The provider's `dat_provider_fini`. `None` for a built-in provider, and for the libraries of
    /// some vendors, which lack the function. Other registries also load such libraries.
    fini: Option<DAT_PROVIDER_FINI_FUNC>,
    /// The library. `None` for a built-in provider.
    library: Option<Library>,
}

/// The arguments of `dat_provider_init`. They stay in their place until `dat_provider_fini` has
/// returned, because some providers keep the pointers.
struct Arguments {
    info: DAT_PROVIDER_INFO,
    ia_params: CString,
}

/// The key of an initialised provider. Two entries with equal keys share one provider.
#[derive(Clone, PartialEq, Eq)]
struct ProviderKey {
    interface: Interface,
    library: String,
    ia_params: String,
    /// The address of the built-in entry. 0 for a library.
    builtin: usize,
}

impl ProviderKey {
    fn new(candidate: &Candidate) -> ProviderKey {
        let Entry { ia_name, api, threadsafe, library, ia_params, .. } = &candidate.entry;
        ProviderKey {
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

struct Providers {
    loaded: Vec<Loaded>,
    /// The providers that are being started or finished, by the thread that has [`Loading`].
    in_transition: Vec<ProviderKey>,
    last_id: u64,
}

/// Locks the table of loaded providers. No function of a provider is called under this lock.
fn providers() -> SignalGuard<Providers> {
    static PROVIDERS: Mutex<Providers> =
        Mutex::new(Providers { loaded: Vec::new(), in_transition: Vec::new(), last_id: 0 });
    lock(&PROVIDERS)
}

/// The right to load, start, finish and unload providers. One thread at a time has it. The thread
/// may get it once more: a layered provider opens IAs of other providers in its `dat_provider_init`
/// and closes them in its `dat_provider_fini`.
struct Loading {
    /// The lock. `None` if the thread has the right already.
    outermost: Option<SignalGuard<()>>,
}

/// The thread that has [`Loading`], or 0.
static LOADING_THREAD: AtomicUsize = AtomicUsize::new(0);

impl Loading {
    fn begin() -> Loading {
        static LOADING: Mutex<()> = Mutex::new(());
        // SAFETY: the function has no requirements.
        let this = unsafe { libc::pthread_self() } as usize;
        if LOADING_THREAD.load(Ordering::Relaxed) == this {
            return Loading { outermost: None };
        }
        let outermost = Some(lock(&LOADING));
        LOADING_THREAD.store(this, Ordering::Relaxed);
        Loading { outermost }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.outermost.is_some() {
            LOADING_THREAD.store(0, Ordering::Relaxed);
        }
    }
}

/// Loads the provider of an entry. If the provider is loaded already, counts one more use of it.
pub(crate) fn acquire(candidate: &Candidate) -> Result<Provider, LoadError> {
    let key = ProviderKey::new(candidate);
    let _loading = Loading::begin();
    let id = {
        let mut providers = providers();
        if let Some(loaded) = providers.loaded.iter_mut().find(|loaded| loaded.key == key) {
            loaded.use_count += 1;
            let (table, id) = (loaded.table, Some(loaded.id));
            return Ok(Provider { table, interface: key.interface, id });
        }
        if providers.in_transition.contains(&key) {
            return Err(LoadError::OpensItself);
        }
        providers.in_transition.push(key.clone());
        providers.last_id += 1;
        providers.last_id
    };
    let loaded = load(candidate, key, id);
    let mut providers = providers();
    providers.in_transition.pop();
    let loaded = loaded?;
    let provider =
        Provider { table: loaded.table, interface: loaded.key.interface.clone(), id: Some(id) };
    providers.loaded.push(loaded);
    Ok(provider)
}

fn load(candidate: &Candidate, key: ProviderKey, id: u64) -> Result<Loaded, LoadError> {
    let entry = &candidate.entry;
    let ia_params = CString::new(entry.ia_params.as_str()).map_err(|_| LoadError::Parameters)?;
    let arguments = Box::new(Arguments { info: key.interface.to_c(), ia_params });
    if let Some(builtin) = candidate.builtin {
        let table = register_builtin(builtin, &key, &arguments.info)?;
        return Ok(Loaded { id, use_count: 1, key, table, arguments, fini: None, library: None });
    }
    let (init, fini, library) = open_provider(&entry.library)?;
    let serial = dynamic::serial();
    report(Category::Library, format_args!("{}: starting {}", entry.origin, entry.library));
    // SAFETY: the call passes a complete info and a NUL-terminated string to the provider's
    // function. Both exist until the provider is finished.
    unsafe { init(&arguments.info, arguments.ia_params.as_ptr()) };
    let Some(table) = dynamic::registered_since(&key.interface, serial) else {
        if let Some(fini) = fini {
            // SAFETY: every init is followed by its fini, whether or not the init succeeded.
            unsafe { fini(&arguments.info) };
        }
        let Interface { name, major, minor, .. } = &key.interface;
        return Err(LoadError::NotRegistered(
            format!("{name} for u{major}.{minor}"),
            other_registry_hint(),
        ));
    };
    Ok(Loaded { id, use_count: 1, key, table, arguments, fini, library: Some(library) })
}

/// Registers the function table of a built-in adapter.
fn register_builtin(
    builtin: &Builtin,
    key: &ProviderKey,
    info: &DAT_PROVIDER_INFO,
) -> Result<FunctionTable, LoadError> {
    let refused = |word| LoadError::NotAdded(Status { word, major: 2 }.to_string());
    report(Category::Library, format_args!("{}: starting {}", Origin::Builtin, key.library));
    // A second registration of the same key could have other parameters, but the parameters of a
    // registered adapter must not change.
    if dynamic::registered_since(&key.interface, 0).is_some() {
        return Err(refused(DAT_ERROR(DAT_PROVIDER_ALREADY_REGISTERED, DAT_NO_SUBTYPE)));
    }
    let table = (builtin.table)(info, &key.ia_params).map_err(LoadError::NotAdded)?;
    dynamic::add(FunctionTable(table), key.interface.clone()).map_err(refused)?;
    Ok(FunctionTable(table))
}

/// Checks a provider library without calling its functions: loads it, looks for the function that
/// every provider must have, and unloads it. The library's constructors may end the calling
/// process.
///
/// # Errors
///
/// The library cannot be loaded, or is not a provider.
pub fn check_loads(library: &str) -> Result<(), LoadError> {
    open_provider(library).map(drop)
}

/// Checks that the provider of an entry registers itself as the entry says: initialises and
/// finalises the provider. The provider may end the calling process.
///
/// # Errors
///
/// The errors of [`check_loads`], and an error if the provider registers nothing under the entry's
/// name and version.
pub fn check_starts(entry: &Entry) -> Result<(), LoadError> {
    acquire(&Candidate { entry: entry.clone(), builtin: None }).map(drop)
}

type Functions = (DAT_PROVIDER_INIT_FUNC, Option<DAT_PROVIDER_FINI_FUNC>, Library);

fn open_provider(name: &str) -> Result<Functions, LoadError> {
    let library = open_library(name)?;
    // SAFETY: a library that a registry file names as a DAT provider must export these functions
    // with these signatures, which cannot be checked. The second function may be missing.
    let (init, fini) = unsafe {
        (
            symbol::<DAT_PROVIDER_INIT_FUNC>(&library, DAT_PROVIDER_INIT_FUNC_STR)?,
            symbol::<DAT_PROVIDER_FINI_FUNC>(&library, DAT_PROVIDER_FINI_FUNC_STR).ok(),
        )
    };
    Ok((init, fini, library))
}

fn open_library(name: &str) -> Result<Library, LoadError> {
    promote_to_global_scope();
    report(Category::Library, format_args!("loading {name}"));
    // If the file is a FIFO, dlopen would wait until a program writes to the FIFO.
    if name.contains('/')
        && std::fs::metadata(name).is_ok_and(|found| !found.is_file() && !found.is_dir())
    {
        return Err(LoadError::Open(format!("{name}: it is not a regular file")));
    }
    // SAFETY: loading runs the library's constructors, as the registry file requests. RTLD_GLOBAL
    // is needed because some providers load further libraries that look for their symbols.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }
        .map_err(|error| LoadError::Open(reason(&error)))
}

/// The dynamic linker's message. The error's own text names only the function that failed.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Finds a function of a library.
///
/// # Safety
///
/// `T` must be the type of the function of that name.
unsafe fn symbol<T: Copy>(library: &Library, name: &std::ffi::CStr) -> Result<T, LoadError> {
    // SAFETY: the caller guarantees that `T` is the type of the function.
    match unsafe { library.get::<T>(name) } {
        Ok(symbol) => Ok(*symbol),
        Err(error) => Err(LoadError::Symbol(reason(&error))),
    }
}

/// Moves the library that contains this code into the global scope.
///
/// Providers are not linked with a registry. When they are loaded, they look for
/// `dat_registry_add_provider` and the other functions in the global scope. A plug-in system opens
/// this library with RTLD_LOCAL, outside of the global scope. This call adds it to the scope.
fn promote_to_global_scope() {
    static DONE: OnceLock<Option<ManuallyDrop<Library>>> = OnceLock::new();
    DONE.get_or_init(|| {
        let (path, _) = module_of(abi::add_provider as *const c_void)?;
        // SAFETY: RTLD_NOLOAD loads nothing and only changes the scope of a loaded library. If this
        // code is in the program itself, dlopen fails. The failure is ignored, because a program's
        // symbols are global already.
        let library =
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NOLOAD) }
                .ok()?;
        // The library stays open because it must stay in the global scope.
        Some(ManuallyDrop::new(library))
    });
}

/// The loaded file that contains an address, and its load address.
fn module_of(address: *const c_void) -> Option<(std::ffi::OsString, *mut c_void)> {
    use std::os::unix::ffi::OsStringExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address and fills in the structure.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: dladdr returned the name of a loaded file. The name exists as long as the file is
    // loaded.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some((std::ffi::OsString::from_vec(name.to_bytes().to_vec()), info.dli_fbase))
}

/// A hint why a provider's registration did not reach this registry: the provider has found another
/// registry, or no registry.
fn other_registry_hint() -> String {
    // SAFETY: dlsym only looks up a name.
    let found = unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"dat_registry_add_provider".as_ptr().cast::<c_char>())
    };
    let ours = module_of(abi::add_provider as *const c_void).map(|(_, base)| base);
    match module_of(found) {
        None => "; this program does not export dat_registry_add_provider".into(),
        Some((file, base)) if Some(base) != ours => {
            format!(
                "; the process finds dat_registry_add_provider in {}, which has its own registry",
                file.display()
            )
        }
        Some(_) => String::new(),
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let _loading = Loading::begin();
        let unused = {
            let mut providers = providers();
            let Some(index) = providers.loaded.iter().position(|loaded| loaded.id == id) else {
                return;
            };
            providers.loaded[index].use_count -= 1;
            if providers.loaded[index].use_count > 0 {
                return;
            }
            let unused = providers.loaded.swap_remove(index);
            providers.in_transition.push(unused.key.clone());
            unused
        };
        unload(unused);
        providers().in_transition.pop();
    }
}

fn unload(loaded: Loaded) {
    report(Category::Library, format_args!("finishing {}", loaded.key.library));
    if let Some(fini) = loaded.fini {
        // SAFETY: the provider's fini is called once after its init, when no IA of it is open.
        unsafe { fini(&loaded.arguments.info) };
    }
    // The table must not stay registered, because a library's table is unmapped next. A built-in
    // provider does not unregister its table, and neither do some faulty libraries.
    if dynamic::remove(loaded.table, &loaded.key.interface).is_ok() && loaded.library.is_some() {
        report(Category::Library, format_args!("{} had not unregistered", loaded.key.library));
    }
    if let Some(library) = loaded.library
        && let Err(error) = library.close()
    {
        report(
            Category::Library,
            format_args!("unloading {}: {}", loaded.key.library, reason(&error)),
        );
    }
}
