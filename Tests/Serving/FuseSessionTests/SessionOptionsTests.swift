import SystemPackage
import Testing

@testable import FuseSession

/// The options passed to libfuse.
@Suite struct SessionOptionsTests {
    @Test("A comma or a backslash in the source's name is escaped, also before a combining character")
    func source() {
        let options = SessionOptions(mountpoint: "/m", fuseOptions: ["ro"], sourceName: "a,b\\c,\u{301}d")
        let expected = "fsname=a\\,b\\\\c\\,\u{301}d,subtype=vaultfs,default_permissions,ro"
        #expect(Array(options.argument(kernelChecks: true).utf8) == Array(expected.utf8))
    }

    @Test(
        "A mount is private unless others may enter, or its user asks for the kernel's checks",
        arguments: [
            ([], true), (["ro", "noexec"], true), (["allow_other"], false), (["allow_root"], false),
            (["ro", "default_permissions"], false),
        ])
    func privacy(words: [String], isPrivate: Bool) {
        let options = SessionOptions(mountpoint: "/m", fuseOptions: words, sourceName: "s")
        #expect(options.isPrivate == isPrivate)
        let argument = options.argument(kernelChecks: !isPrivate)
        #expect(argument.split(separator: ",").filter { $0 == "default_permissions" }.count == (isPrivate ? 0 : 1))
    }
}
