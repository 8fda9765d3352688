//! Exports functions with the symbol version that programs linked against OFED's library require.

/// Exports C functions as `name@@VERSION`. A panic does not propagate out of such a function
/// (`registry::boundary`).
///
/// The `.symver` directive must be in the same object file as the function, so this macro puts it
/// into the same module. The library's `.map` file declares the version.
#[macro_export]
macro_rules! export {
    ($version:literal; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> DAT_RETURN $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> DAT_RETURN {
            $crate::guard(|| $body)
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
