import LinuxSystem
import SystemPackage
import Testing

/// Names passed to the calls on a directory's entries.
@Suite struct ComponentTests {
    @Test(
        "Bytes that lead out of a directory, or through another one, are no component",
        arguments: ["", ".", "..", "/", "a/b", "/a", "a/", "../a", "a/..", "a\0b", "\0"])
    func refused(text: String) {
        #expect(throws: StoreError.refused(.invalidArgument)) { try Component(Array(text.utf8)) }
        #expect(!Component.isOne(Array(text.utf8)))
    }

    @Test("All others are", arguments: ["a", "...", "..a", ".a", " ", "\n", "\\", "a b", "ä"])
    func accepted(text: String) throws {
        let component = try Component(Array(text.utf8))
        #expect(component.bytes == Array(text.utf8) && (component + "x").bytes == Array((text + "x").utf8))
    }
}
