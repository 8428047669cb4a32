/// A part of a file that a write request has not written: it failed, or has written less.
///
/// write(2) has filled pages of the page cache before the kernel sends the request, and a failure leaves them in the mappings of
/// programs, although it no longer counts them as up to date (fuse_send_write_pages in fs/fuse/file.c). A byte stored there would
/// make the kernel write the whole page. So these pages are dropped, and no lock ends before that.
struct UnwrittenRange: Hashable, Sendable {
    /// Node id.
    var inode: UInt64
    /// In bytes.
    var offset, length: Int
}
