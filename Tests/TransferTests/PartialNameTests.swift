import Testing

@testable import Transfer

@Suite struct PartialNameTests {
    @Test func `a name says of which file, and of which content`() throws {
        let name = try PartialName(file: Array("film.mp4".utf8), content: "one")
        let other = try PartialName(file: Array("film.mp4".utf8), content: "two")
        #expect(PartialName(name.bytes) == name)
        #expect(name.file == other.file)
        #expect(name.content != other.content)
        #expect(String(decoding: name.bytes, as: UTF8.self).hasPrefix(".vaultfs-export-"))
        #expect(name.bytes.count == 49)
    }

    @Test(arguments: ["", ".vaultfs-export-", ".vaultfs-export-0123456789abcdef", ".vaultfs-export-a-b", "film.mp4"])
    func `other names are none`(name: String) {
        #expect(PartialName(Array(name.utf8)) == nil)
    }
}
