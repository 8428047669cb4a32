internal import CFuse

/// The version of libfuse in use.
package enum FuseVersion {
    package static var text: String { String(cString: fuse_pkgversion()) }
}
