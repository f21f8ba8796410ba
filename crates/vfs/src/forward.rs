//! File systems that forward calls to another one.

/// Methods of [`FileSystem`](crate::FileSystem) that pass the call on to the file system in a
/// field: `forward!(field: lookup getattr readdir);` in the `impl`. The crate that uses it has the
/// libraries `base`, `block` and `rt` by these names.
#[macro_export]
macro_rules! forward {
    ($to:ident: $($method:ident)+) => { $($crate::forward!(@ $to $method);)+ };

    (@ $to:ident name) => { $crate::forward!(= $to name() -> &'static str); };
    (@ $to:ident root) => { $crate::forward!(= $to root() -> ::base::Ino); };
    (@ $to:ident walk_version) => { $crate::forward!(= $to walk_version() -> Option<u64>); };
    (@ $to:ident ignores_case) => { $crate::forward!(= $to ignores_case() -> bool); };
    (@ $to:ident lookup) => {
        $crate::forward!(? $to lookup(dir: ::base::Ino, name: &[u8]) -> $crate::Attr);
    };
    (@ $to:ident getattr) => {
        $crate::forward!(? $to getattr(ino: ::base::Ino) -> $crate::Attr);
    };
    (@ $to:ident names_of) => {
        $crate::forward!(? $to names_of(ino: ::base::Ino) -> Option<Vec<$crate::ParentName>>);
    };
    (@ $to:ident readlink) => {
        $crate::forward!(? $to readlink(ino: ::base::Ino) -> Vec<u8>);
    };
    (@ $to:ident readdir) => {
        $crate::forward!(? $to readdir(
            dir: ::base::Ino, cookie: u64, emit: &mut dyn FnMut($crate::DirEntry) -> bool
        ) -> ());
    };
    (@ $to:ident open) => { $crate::forward!(? $to open(ino: ::base::Ino) -> ()); };
    (@ $to:ident release) => { $crate::forward!(? $to release(ino: ::base::Ino) -> ()); };
    (@ $to:ident read) => {
        $crate::forward!(? $to read(
            ino: ::base::Ino, offset: u64, buf: &mut [u8]
        ) -> usize);
    };
    (@ $to:ident read_direct) => {
        $crate::forward!(? $to read_direct(
            ino: ::base::Ino, offset: u64, buf: &mut [u8]
        ) -> usize);
    };
    (@ $to:ident read_many) => {
        fn read_many(&self, cx: &mut ::rt::Cx, reads: &mut [$crate::FileRead<'_>]) {
            self.$to.read_many(cx, reads);
        }
    };
    (@ $to:ident read_at_host) => {
        $crate::forward!(? $to read_at_host(
            ino: ::base::Ino,
            offset: u64,
            len: u64,
            give: &mut dyn FnMut(&[::block::HostRange<'_>]) -> bool
        ) -> bool);
    };
    (@ $to:ident sync) => { $crate::forward!(? $to sync() -> ()); };
    (@ $to:ident grow) => { $crate::forward!(? $to grow(blocks: u64) -> ()); };
    (@ $to:ident xfs_geometry) => { $crate::forward!(? $to xfs_geometry() -> Vec<u8>); };
    (@ $to:ident set_flags) => {
        $crate::forward!(? $to set_flags(ino: ::base::Ino, flags: u32) -> $crate::Attr);
    };
    (@ $to:ident extent_hints) => {
        $crate::forward!(? $to extent_hints(ino: ::base::Ino) -> $crate::ExtentHints);
    };
    (@ $to:ident set_extent_hints) => {
        $crate::forward!(? $to set_extent_hints(
            ino: ::base::Ino, hints: $crate::ExtentHints
        ) -> ());
    };
    (@ $to:ident fallocate) => {
        $crate::forward!(? $to fallocate(
            ino: ::base::Ino, mode: $crate::FallocMode, offset: u64, len: u64
        ) -> ());
    };
    (@ $to:ident unshare_range) => {
        $crate::forward!(? $to unshare_range(ino: ::base::Ino, offset: u64, len: u64) -> ());
    };
    (@ $to:ident seek) => {
        $crate::forward!(? $to seek(
            ino: ::base::Ino, offset: u64, whence: $crate::SeekWhence
        ) -> u64);
    };
    (@ $to:ident fiemap) => {
        $crate::forward!(? $to fiemap(
            ino: ::base::Ino, offset: u64, len: u64
        ) -> Vec<$crate::Iomap>);
    };
    (@ $to:ident getxattr) => {
        $crate::forward!(? $to getxattr(ino: ::base::Ino, name: &[u8]) -> Vec<u8>);
    };
    (@ $to:ident setxattr) => {
        $crate::forward!(? $to setxattr(
            ino: ::base::Ino, name: &[u8], value: &[u8], flags: $crate::XattrFlags
        ) -> ());
    };
    (@ $to:ident listxattr) => {
        $crate::forward!(? $to listxattr(ino: ::base::Ino) -> Vec<Vec<u8>>);
    };
    (@ $to:ident removexattr) => {
        $crate::forward!(? $to removexattr(ino: ::base::Ino, name: &[u8]) -> ());
    };
    (@ $to:ident statfs) => { $crate::forward!(? $to statfs() -> $crate::StatFs); };
    (@ $to:ident lost) => { $crate::forward!(= $to lost() -> $crate::Lost); };
    (@ $to:ident note_lost) => {
        $crate::forward!(= $to note_lost(
            ino: ::base::Ino, bytes: u64, errno: ::base::Errno
        ) -> ());
    };
    (@ $to:ident commit) => { $crate::forward!(? $to commit() -> ()); };
    (@ $to:ident unmount) => { $crate::forward!(? $to unmount() -> ()); };
    (@ $to:ident shutdown_hard) => { $crate::forward!(= $to shutdown_hard() -> ()); };

    // That never wait, and that may.
    (= $to:ident $method:ident($($arg:ident: $type:ty),*) -> $out:ty) => {
        fn $method(&self, $($arg: $type),*) -> $out {
            self.$to.$method($($arg),*)
        }
    };
    (? $to:ident $method:ident($($arg:ident: $type:ty),*) -> $out:ty) => {
        fn $method(
            &self,
            cx: &mut ::rt::Cx,
            $($arg: $type),*
        ) -> Result<$out, ::base::Errno> {
            self.$to.$method(cx, $($arg),*)
        }
    };
}
