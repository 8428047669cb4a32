import Testing

@testable import Transfer

@Suite struct TemporaryNameTests {
    @Test("a resumable name says which file, and which content")
    func resumableNameSaysWhichFile() throws {
        let name = try TemporaryName.resumable(Array("film.mp4".utf8), content: "one")
        let other = try TemporaryName.resumable(Array("film.mp4".utf8), content: "two")
        let file = try TemporaryName.resumable(Array("film.mkv".utf8), content: "one")
        #expect(TemporaryName.isOne(name) && TemporaryName.isResumable(name))
        #expect(name != other && TemporaryName.isSameFile(name, other))
        #expect(!TemporaryName.isSameFile(name, file))
        #expect(name.count == 51)
        let random = try TemporaryName.make()
        #expect(TemporaryName.isOne(random) && !TemporaryName.isResumable(random))
        #expect(!TemporaryName.isSameFile(random, random))
    }

    @Test(
        "other names are none",
        arguments: [
            "", ".vaultfs-transfer-", ".vaultfs-transfer-0123456789abcde", ".vaultfs-transfer-0123456789abcdeg",
            ".vaultfs-transfer-a-b", ".vaultfs-transfer-0123456789abcdef-", "film.mp4",
        ]
    )
    func otherNamesAreNone(name: String) {
        #expect(!TemporaryName.isOne(Array(name.utf8)))
    }
}
