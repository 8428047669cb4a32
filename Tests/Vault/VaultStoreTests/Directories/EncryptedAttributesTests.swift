import CLinux
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// Attributes of a file, on their own and in its pack.
@Suite(.timeLimit(.minutes(60))) struct EncryptedAttributesTests {
    private let directory: VaultTestDirectory
    private let codec: AttributeCodec
    private var path: String { directory.path.appending("objects").string }
    private let createOnly = linux_XATTR_CREATE
    private let replaceOnly = linux_XATTR_REPLACE

    init() throws {
        directory = try VaultTestDirectory()
        codec = try AttributeCodec(key: try SecretBytes.random(count: 64))
        try #require(mkdir(path, 0o700) == 0)
        _ = try Descriptor(path: FilePath(bytes: ascii(path + "/f")), flags: O_CREAT | O_RDWR, mode: 0o600)
    }

    /// The file's attributes, as a new mount sees them.
    private func attributes() throws -> EncryptedAttributes {
        EncryptedAttributes(try Descriptor(path: FilePath(bytes: ascii(path + "/f")), flags: O_RDONLY), codec)
    }

    private func stored() throws -> ExtendedAttributes {
        ExtendedAttributes(try Descriptor(path: FilePath(bytes: ascii(path + "/f")), flags: O_RDONLY))
    }

    private func set(_ name: String, _ value: String, flags: Int32 = 0) throws {
        var attributes = try attributes()
        try attributes.set(ascii("user." + name), ascii(value), flags: flags)
    }

    private func remove(_ name: String) throws {
        var attributes = try attributes()
        try attributes.remove(ascii("user." + name))
    }

    private func all() throws -> [String: String] {
        var attributes = try attributes()
        let (names, damaged) = try attributes.names(
            ofStored: stored().names().filter { $0.starts(with: ascii("user.")) })
        #expect(damaged == 0)
        #expect(Set(names).count == names.count)
        return try Dictionary(
            uniqueKeysWithValues: names.map { name in
                (text(Array(name.dropFirst(5))), text(try attributes.value(of: name)))
            })
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    private func alone() throws -> Int {
        try stored().names().count { $0.starts(with: ascii("user.")) && $0 != AttributeCodec.packName }
    }

    private func isPacked() throws -> Bool { try stored().valueIfPresent(of: AttributeCodec.packName) != nil }

    private func expect(_ errno: Errno, _ body: () throws -> Void) {
        #expect(throws: StoreError.system(errno)) { try body() }
    }

    @Test("Attributes-5: a few attributes are stored on their own, and further ones in the pack")
    func few() throws {
        for number in 0..<4 { try set("n\(number)", "\(number)") }
        #expect(try alone() == 4 && !isPacked())
        for number in 4..<100 { try set("n\(number)", "\(number)") }
        #expect(try alone() == 4 && isPacked())
        #expect(try all() == Dictionary(uniqueKeysWithValues: (0..<100).map { ("n\($0)", "\($0)") }))
        for number in 0..<100 { try remove("n\(number)") }
        #expect(try all() == [:])
        #expect(try !isPacked())
    }

    @Test("Attributes-5: XATTR_CREATE and XATTR_REPLACE see both", arguments: [0, 5])
    func flags(others: Int) throws {
        for number in 0..<others { try set("n\(number)", "") }
        expect(.noData) { try set("a", "1", flags: replaceOnly) }
        try set("a", "1", flags: createOnly)
        expect(.fileExists) { try set("a", "2", flags: createOnly) }
        #expect(try all()["a"] == "1")
        try set("a", "3", flags: replaceOnly)
        try set("a", "4")
        #expect(try all()["a"] == "4")
        #expect(try isPacked() == (others > 0))
        try remove("a")
        expect(.noData) { try remove("a") }
        expect(.noData) {
            var attributes = try attributes()
            _ = try attributes.value(of: ascii("user.a"))
        }
    }

    @Test("A name that is too long to be stored cannot be set, and is not there")
    func longName() throws {
        let name = String(repeating: "n", count: 166)
        expect(.outOfRange) { try set(name, "1") }
        expect(.noData) { try remove(name) }
        expect(.noData) {
            var attributes = try attributes()
            _ = try attributes.value(of: ascii("user." + name))
        }
    }

    @Test("Attributes-5: a value on its own counts, and not the pack's value of the same name")
    func both() throws {
        var pack = AttributePack()
        pack[ascii("user.a")] = ascii("old")
        pack[ascii("user.b")] = ascii("b")
        try stored().set(AttributeCodec.packName, try #require(try codec.encrypt(pack: pack)), flags: 0)
        try stored().set(
            codec.storedName(of: ascii("user.a")), codec.encrypt(value: ascii("new"), name: ascii("user.a")), flags: 0)
        #expect(try all() == ["a": "new", "b": "b"])
        try set("a", "newer", flags: replaceOnly)
        #expect(try all() == ["a": "newer", "b": "b"])
        try remove("a")
        #expect(try all() == ["b": "b"])
    }

    @Test("Attributes-4: a damaged pack hides its attributes, and is never replaced")
    func damaged() throws {
        try set("own", "1")
        try stored().set(AttributeCodec.packName, [UInt8](repeating: 1, count: 40), flags: 0)
        var attributes = try attributes()
        let found = try attributes.names(ofStored: stored().names().filter { $0.starts(with: ascii("user.")) })
        let damage = StoreError.damaged("pack of attributes is damaged, or another vault's")
        #expect(found.names == [ascii("user.own")] && found.damaged == 1)
        #expect(throws: damage) { try attributes.value(of: ascii("user.a")) }
        #expect(throws: damage) { try attributes.remove(ascii("user.a")) }
        #expect(throws: damage) { try set("a", "1", flags: replaceOnly) }
        for number in 0..<6 { try set("n\(number)", "1") }
        try set("own", "2")
        try remove("own")
        #expect(try stored().value(of: AttributeCodec.packName) == [UInt8](repeating: 1, count: 40))
        #expect(try alone() == 6)
    }

    @Test("if the pack has its maximum size, further attributes stay on their own")
    func largePack() throws {
        // Skipped on stores that refuse values of this size, such as ext4.
        for number in 0..<4 { try set("n\(number)", "") }
        let large = String(repeating: "x", count: 40_000)
        guard (try? set("large", large)) != nil, (try? set("larger", large)) != nil else { return }
        #expect(try alone() == 5 && isPacked())
        try set("larger", "small")
        try set("last", large)
        #expect(try all()["large"] == large && all()["last"] == large && all()["larger"] == "small")
    }

    /// Makes numbered calls fail with ENOSPC. Only calls that set attributes count.
    private func failing(_ numbers: Set<Int>, _ body: () throws -> Void) rethrows {
        let calls = Mutex(0)
        try CallWatcher.watch(
            path, includesAttributes: true,
            { _ in
                calls.withLock { calls in
                    defer { calls += 1 }
                    return numbers.contains(calls) ? ENOSPC : 0
                }
            }, during: body)
    }

    /// Changes without room for an attribute of its own at first, or also in the pack. The comments show the results.
    private static let crowded: [(name: String, failing: Set<Int>)] = [
        // In the pack: at once, after one attribute was moved there, or after two.
        ("new", [0]), ("new", [0, 1]), ("new", [0, 1, 4, 5]),
        // On its own after one attribute was moved, or in the pack.
        ("b", [0]), ("b", [0, 3, 6]),
    ]

    @Test("Store-39: a kill at any call of a move into the pack loses nothing", arguments: crowded.indices)
    func killedMove(_ index: Int) throws {
        let (name, numbers) = Self.crowded[index]
        for (name, value) in [("a", "1"), ("b", "22"), ("c", "333")] { try set(name, value) }
        let before = try all()
        let copies = DirectoryCopies(of: FilePath(path).lexicallyNormalized().string)
        try copies.take()
        // A kill leaves the effects of the calls before it.
        var call = 0
        var isWhole = false
        while !isWhole {
            try copies.putBack(copies.paths[0])
            let later = Set(call..<(call + 100))
            let result = Result { try failing(numbers.union(later)) { try set(name, "new value") } }
            #expect(try all() == before || all() == before.merging([name: "new value"]) { $1 }, "call \(call)")
            if case .success = result {
                isWhole = call > (numbers.max() ?? 0)
                #expect(try isPacked())
            }
            // Now there is room.
            try set(name, "newer")
            #expect(try all() == before.merging([name: "newer"]) { $1 }, "call \(call)")
            try remove(name)
            #expect(try all() == before.filter { $0.key != name }, "call \(call)")
            call += 1
        }
        #expect(call > (numbers.max() ?? 0))
    }

    @Test("a store that leaves an empty attribute when it is full: each attribute is as before", arguments: [3, 6])
    func emptied(_ count: Int) throws {
        for number in 0..<count { try set("n\(number)", "\(number)") }
        let before = try all()
        let isFull = Mutex(true)
        let answer = { @Sendable (_: WatchedCall) -> Int32 in
            // Of every two calls that set the same attribute, the first fails.
            isFull.withLock { isFull in
                defer { isFull.toggle() }
                return isFull ? CallWatcher.inPart : 0
            }
        }
        for name in ["new", "n0", "n5"] {
            for flags in [0, createOnly, replaceOnly] {
                isFull.withLock { $0 = true }
                CallWatcher.watch(path, includesAttributes: true, answer) { _ = try? set(name, "other", flags: flags) }
                let after = try all()
                #expect(after == before || after == before.merging([name: "other"]) { $1 }, "\(name) \(flags)")
                if before[name] == nil, after[name] != nil { try remove(name) }
                if let old = before[name] { try set(name, old) }
            }
        }
        // Holds for unencrypted attributes, too.
        try stored().set(ascii("user.plain"), [1, 2], flags: 0)
        isFull.withLock { $0 = true }
        CallWatcher.watch(path, includesAttributes: true, answer) {
            expect(.noSpace) { try stored().set(ascii("user.plain"), [3], flags: 0) }
            isFull.withLock { $0 = true }
            expect(.noSpace) { try stored().set(ascii("user.new"), [3], flags: 0) }
        }
        #expect(try stored().value(of: ascii("user.plain")) == [1, 2])
        #expect(try stored().valueIfPresent(of: ascii("user.new")) == nil)
    }

    @Test("Store-39: without any room the change fails and loses nothing")
    func noRoom() throws {
        for (name, value) in [("a", "1"), ("b", "22"), ("c", "333")] { try set(name, value) }
        let before = try all()
        failing(Set(0..<100)) {
            expect(.noSpace) { try set("new", "") }
            expect(.noSpace) { try set("a", "x") }
        }
        #expect(try all() == before)
        #expect(try alone() == 3 && !isPacked())
    }
}
