import SystemPackage
import Testing

@testable import FuseSession

/// The options passed to libfuse.
@Suite struct MountOptionsTests {
    @Test("A comma or a backslash in the source's name is escaped, also before a combining character")
    func source() {
        let options = MountOptions(mountpoint: "/m", fuseOptions: ["ro"], sourceName: "a,b\\c,\u{301}d")
        let expected = "fsname=a\\,b\\\\c\\,\u{301}d,subtype=vaultfs,default_permissions,ro"
        #expect(Array(options.argument.utf8) == Array(expected.utf8))
    }
}
