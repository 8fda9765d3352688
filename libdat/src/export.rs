//! Exports functions with the symbol version that programs linked against OFED's library require.

use dat_sys::DAT_RETURN;
use telemetry::threads::Uncancellable;

/// Runs the body of an exported function. A panic does not propagate out of it
/// (`registry::boundary`), and its thread is not cancelled meanwhile.
pub fn run(body: impl FnOnce() -> DAT_RETURN) -> DAT_RETURN {
    let _uncancellable = Uncancellable::new();
    registry::boundary::guard(body)
}

/// Exports C functions as `name@@VERSION`, with a body that the registry implements ([`run`]).
///
/// The `.symver` directive must be in the same object file as the function, so this macro puts it
/// into the same module. The library's `.map` file declares the version.
#[macro_export]
macro_rules! export {
    ($version:literal; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> DAT_RETURN $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> DAT_RETURN {
            $crate::run(|| $body)
        }
        $crate::version!($version, $name);
    )*};
}

/// Assigns the symbol version to an exported function.
#[macro_export]
macro_rules! version {
    ($version:literal, $name:ident) => {
        std::arch::global_asm!(concat!(
            ".symver ",
            stringify!($name),
            ", ",
            stringify!($name),
            "@@",
            $version,
            ", remove"
        ));
    };
}
