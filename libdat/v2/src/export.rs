//! Exporting with the symbol version that programs linked against the original ask for.

/// Exports C functions as `name@@DAT_2.0`. A panic does not leave them (`registry::boundary`).
///
/// The `.symver` directive has to be in the same object file as the function: this macro puts it into the same
/// module. `libdat2.map` declares the version.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> DAT_RETURN $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> DAT_RETURN {
            ::registry::boundary::guard(|| $body)
        }
        version!($name);
    )*};
}

/// Gives an exported function its version.
macro_rules! version {
    ($name:ident) => {
        std::arch::global_asm!(concat!(
            ".symver ",
            stringify!($name),
            ", ",
            stringify!($name),
            "@@DAT_2.0, remove"
        ));
    };
}
