import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// getdents64(2) with the store's own offsets.
@Suite struct DirectoryReaderTests {
    private let directory: TemporaryDirectory
    /// More entries than fit into one buffer of 32 KiB.
    private let count = 1500

    init() throws {
        directory = try TemporaryDirectory()
        for number in 0..<count {
            close(Glibc.open(directory.appending(name(number)), O_CREAT | O_WRONLY, 0o600))
        }
    }

    private func name(_ number: Int) -> String { "an entry with a name as long as they are \(number)" }

    private func open() throws -> DirectoryReader {
        DirectoryReader(try Descriptor(path: FilePath(directory.path), flags: O_RDONLY | O_DIRECTORY))
    }

    @Test("Every entry is listed once, without the dots")
    func all() throws {
        var reader = try open()
        var names: [[UInt8]] = []
        while let entry = try reader.next() { names.append(entry.bytes) }
        #expect(names.count == count)
        #expect(Set(names) == Set((0..<count).map { Array(name($0).utf8) }))
        #expect(try reader.next() == nil)
    }

    @Test("An entry that is put back is returned again, at any position of the buffer")
    func putBack() throws {
        var reader = try open()
        var names: [[UInt8]] = []
        while let entry = try reader.nextWithDots() {
            reader.putBack()
            let again = try reader.nextWithDots()
            #expect(again?.name == entry.name, "entry \(names.count)")
            names.append(entry.name)
        }
        #expect(Set(names).count == count + 2)
        #expect(names.count == count + 2)
    }

    @Test("Reading continues at any entry's offset, also from another descriptor, and from the beginning")
    func offsets() throws {
        var reader = try open()
        var entries: [DirectoryReader.Entry] = []
        while let entry = try reader.nextWithDots() { entries.append(entry) }
        var other = try open()
        for index in stride(from: 0, to: entries.count - 1, by: 97) {
            try reader.seek(to: entries[index].nextOffset)
            #expect(try reader.nextWithDots()?.name == entries[index + 1].name)
            try other.seek(to: entries[index].nextOffset)
            #expect(try other.nextWithDots()?.name == entries[index + 1].name)
        }
        try reader.seek(to: 0)
        #expect(try reader.nextWithDots()?.name == entries[0].name)
    }

    @Test("A rewind reads the directory again")
    func fresh() throws {
        var reader = try open()
        while try reader.next() != nil {}
        close(Glibc.open(directory.appending("new"), O_CREAT | O_WRONLY, 0o600))
        try reader.seek(to: 0)
        var found = false
        while let entry = try reader.next() { found = found || entry == "new" }
        #expect(found)
    }
}
