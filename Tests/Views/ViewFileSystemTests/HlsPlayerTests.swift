import Foundation
import Glibc
import TestSupport
import Testing

/// A test player that plays source and view. Every URI of every playlist in the view must lead to the decrypted
/// original, to an error, or to the source's bytes under their key lines. The view must report the last two.
///
/// VAULTFS_PLAYER_COUNT and VAULTFS_PLAYER_SEED give the number of random trees and the seed of the first, and
/// VAULTFS_PLAYER_FAILURES the number of failures after which a lane ends.
@Suite(.timeLimit(.minutes(60))) struct HlsPlayerTests {
    private static let lanes = 2

    private static func setting(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    private static let count = setting("VAULTFS_PLAYER_COUNT") ?? 600
    private static let seed = setting("VAULTFS_PLAYER_SEED") ?? 1
    private static let mostFailures = setting("VAULTFS_PLAYER_FAILURES") ?? 3

    @Test("Correct playlists are decrypted, without key lines and problems", arguments: 0..<lanes)
    func correct(lane: Int) throws { try run(lane) { try HlsTree.correct(seed: $0) } }

    @Test("Broken ones beside them never show ciphertext or wrong bytes without a key line", arguments: 0..<lanes)
    func mixed(lane: Int) throws { try run(lane) { try HlsTree.mixed(seed: $0) } }

    private func run(_ lane: Int, _ make: (UInt64) throws -> HlsTree) throws {
        let directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        var failures: UInt64 = 0
        // Each of the two tests does half of the count.
        for number in stride(from: UInt64(lane), to: (Self.count + 1) / 2, by: Self.lanes) {
            let seed = Self.seed + number
            let tree = try make(seed)
            let found = try HlsCheck(tree, in: directory.appending("source")).failures
            if found.isEmpty { continue }
            Issue.record("VAULTFS_PLAYER_COUNT=1 VAULTFS_PLAYER_SEED=\(seed) \(tree.title): \(found.first ?? "")")
            failures += 1
            if failures == Self.mostFailures { return }
        }
    }

    @Test("Each broken form is decrypted, refused, or left under its key lines and named", arguments: HlsForm.allCases)
    func form(_ form: HlsForm) throws {
        let directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        for seed in Self.seed..<(Self.seed + max(12, Self.count / 100)) {
            let tree = try HlsTree.broken(form, seed: seed)
            let found = try HlsCheck(tree, in: directory.appending("source")).failures
            guard let first = found.first else { continue }
            Issue.record("\(form.rawValue), VAULTFS_PLAYER_SEED=\(seed): \(first)")
            return
        }
    }
}

/// The comparison of a source with its view.
struct HlsCheck {
    private let tree: HlsTree
    private let view: ViewTree
    private let source: HlsPlayer
    private let shown: HlsPlayer
    /// Descriptions of all failures, for people.
    private(set) var failures: [String] = []

    /// - Parameter directory: created here, and removed again.
    init(_ tree: HlsTree, in directory: String) throws {
        self.tree = tree
        var files = tree.files
        let playlists = tree.streams.map { tree.rendered($0) }
        for (stream, playlist) in zip(tree.streams, playlists) { files[stream.path] = playlist.bytes }
        let names = tree.given.keys.sorted()
        let keys = Dictionary(uniqueKeysWithValues: names.enumerated().map { ("\($0)", tree.given[$1] ?? []) })
        try Self.write(files, to: directory)
        try Self.write(keys, to: directory + ".keys")
        defer {
            Self.remove(files, from: directory)
            Self.remove(keys, from: directory + ".keys")
        }
        let paths = names.enumerated().map { ($1, "\(directory).keys/\($0)") }
        view = try ViewTree(of: directory, keys: Dictionary(uniqueKeysWithValues: paths))
        source = HlsPlayer(files: files.mapValues { .bytes($0) }, isDownload: true, given: tree.given)
        shown = HlsPlayer(files: view.files, isDownload: false, given: tree.given)
        for text in view.wrongLengths { failures.append("wrong length of \(text)") }
        for path in view.unstable { failures.append("the bytes of \(path) depend on the order of reads") }
        for (stream, playlist) in zip(tree.streams, playlists) { try check(stream, playlist.originals) }
        for (lines, name) in named {
            // A line about several files names the first.
            for path in tree.mustBeNamed
            where !lines.contains(where: { $0.hasPrefix("\(path):") || $0.contains(", the first of ") }) {
                failures.append("\(name) does not name \(path): \(lines)")
            }
        }
        let isCorrect = tree.streams.allSatisfy(\.isCorrect)
        if isCorrect, tree.isSilent, !(view.left + view.namedAtMount + view.problems + view.missingKeys).isEmpty {
            failures.append("a false alarm: \(view.left) \(view.problems) \(view.missingKeys)")
        }
    }

    /// The lines of each command about content left encrypted.
    private var named: [(lines: [String], command: String)] {
        [(view.namedAtMount, "mount"), (view.left, "export"), (view.problems, "status")]
    }

    private static func write(_ files: [String: [UInt8]], to directory: String) throws {
        mkdir(directory, 0o755)
        for (name, bytes) in files {
            var parent = directory
            for part in name.split(separator: "/").dropLast() {
                parent += "/\(part)"
                mkdir(parent, 0o755)
            }
            let file = open("\(directory)/\(name)", O_WRONLY | O_CREAT | O_TRUNC, 0o644)
            guard file >= 0, Glibc.write(file, bytes, bytes.count) == bytes.count else {
                throw TestFailure("\(name): errno \(errno)")
            }
            close(file)
        }
    }

    private static func remove(_ files: [String: [UInt8]], from directory: String) {
        var directories: Set<String> = [directory]
        for name in files.keys {
            unlink("\(directory)/\(name)")
            var parent = HlsPlayer.directory(of: name)
            while !parent.isEmpty {
                directories.insert("\(directory)/\(parent)")
                parent = HlsPlayer.directory(of: parent)
            }
        }
        for path in directories.sorted(by: { $0.utf8.count > $1.utf8.count }) { rmdir(path) }
    }

    // MARK: Playlists

    private mutating func check(_ stream: HlsTree.Stream, _ originals: [Int: HlsTree.Original]) throws {
        func fail(_ text: String) { failures.append("\(stream.path): \(text)\n\(texts(stream))") }
        guard case .bytes(let text) = view.files[stream.path] else {
            if stream.isCorrect { fail("the playlist cannot be read") }
            return
        }
        let (before, after) = (try source.references(of: stream.path), try shown.references(of: stream.path))
        guard before.map(\.role) == after.map(\.role) else { return fail("other references than in the source") }
        if stream.isCorrect, !stream.keyLines.isEmpty, String(decoding: text, as: UTF8.self).contains("#EXT-X-KEY") {
            let hasKeys = after.contains { !$0.keys.isEmpty }
            if hasKeys { fail("key lines are left") }
        }
        for number in before.indices {
            let reference = before[number]
            // A word of an unknown tag counts only if it leads to a file or a server.
            if reference.role == .unknown, reference.file == nil, !reference.isRemote { continue }
            var original = originals[reference.line] ?? (reference.role == .map ? .initial : .clear)
            let played = Result { try source.played(number, of: before, in: stream.path) }
            if stream.isCorrect, !isSame(played, original, reference) {
                fail("line \(reference.line): the player and the generator disagree: \(played)")
            }
            if original == .asPlayed {
                let isSampled = reference.role != .map && reference.keys.contains { $0.method == "SAMPLE-AES" }
                original = (try? played.get()).map { isSampled ? .sampled($0) : .bytes($0) } ?? .impossible
            }
            var verdict = verdict(before, after, number, original, stream.path)
            if case .unplayable(let text) = verdict {
                verdict = (try? played.get()) == nil ? .shown : .wrong("decrypted, but a player finds: \(text)")
            }
            switch verdict {
            case .shown, .clear, .unplayable: break
            case .wrong(let text): fail(describe(text, reference, after[number]))
            case .refused(let text):
                if text.isEmpty { fail(describe("an error without a text", reference, after[number])) }
                if stream.isCorrect { fail(describe("refused: \(text)", reference, after[number])) }
                // A fragment's key becomes known only when the fragment is read, so mount cannot name it.
                if case .failure(let failure as TestFailure) = played, failure.description.hasPrefix("no key"),
                    view.missingKeys.isEmpty, !stream.makers.contains(where: \.isGrouped)
                {
                    fail(describe("a missing key, and mount does not name it", reference, after[number]))
                }
            case .left:
                if stream.isCorrect { fail(describe("not decrypted", reference, after[number])) }
                for (lines, name) in named {
                    // A command may name the playlist or the file.
                    let isNamed = [stream.path, after[number].file].compactMap(\.self).contains { path in
                        lines.contains { $0.hasPrefix("\(path):") }
                    }
                    if !isNamed {
                        fail(describe("left encrypted, and \(name) does not name it", reference, after[number]))
                    }
                }
            }
        }
    }

    /// Returns true if the player reads the original from the source.
    private func isSame(
        _ played: Result<[UInt8], any Error>, _ original: HlsTree.Original, _ reference: HlsPlayer.Reference
    ) -> Bool {
        guard let played = try? played.get() else { return false }
        switch original {
        case .clear, .initial: return (try? source.stored(reference)) == played
        case .bytes(let bytes), .sampled(let bytes): return bytes == played
        case .asPlayed, .impossible: return true
        }
    }

    private enum Verdict {
        case shown
        /// Free of keys in the source.
        case clear
        /// The source's bytes under its key lines.
        case left
        case refused(String)
        /// Decrypted, but unplayable for this player.
        case unplayable(String)
        case wrong(String)
    }

    private func verdict(
        _ references: [HlsPlayer.Reference], _ after: [HlsPlayer.Reference], _ number: Int,
        _ original: HlsTree.Original,
        _ playlist: String
    ) -> Verdict {
        let (reference, own) = (references[number], after[number])
        let isKeyed = !own.keys.isEmpty
        if isKeyed, own.keys != reference.keys || own.number != reference.number {
            return .wrong("under other key lines than in the source")
        }
        let isInitial = original == .initial
        guard let file = own.file, let found = view.files[file] else {
            if reference.keys.isEmpty || isInitial { return .clear }
            return isKeyed ? .left : .wrong("no file, and no key line")
        }
        guard case .bytes = found, let bytes = try? shown.stored(own) else {
            if case .failed(let text) = found { return .refused(text) }
            if reference.keys.isEmpty || isInitial { return .clear }
            return isKeyed ? .left : .wrong("a range past the end, and no key line")
        }
        // Compare with the source's bytes under the same name.
        let raw = try? source.stored(own)
        if isKeyed {
            if isInitial { return Self.isRenaming(raw, bytes) ? .clear : .wrong("other bytes in the init segment") }
            // A range left encrypted moves if ranges before it are decrypted.
            guard raw == bytes || (try? source.stored(reference)) == bytes else {
                return .wrong("changed bytes under a key line")
            }
            if own.keys.contains(where: { $0.method == "SAMPLE-AES" }), let map = own.map, own.role != .map,
                let initial = try? shown.stored(after[map]), (try? source.stored(after[map])) != initial
            {
                return .wrong("under a key line, and its init segment is changed")
            }
            return .left
        }
        let before = (try? source.stored(reference)) ?? raw
        if let end = own.range?.upperBound, case .bytes(let all) = found, end > all.count,
            case .bytes(let all)? = reference.file.flatMap({ source.files[$0] }),
            reference.range?.upperBound ?? 0 <= all.count
        {
            return .wrong("a range past the end of the decrypted file")
        }
        let isRight =
            switch original {
            case .clear: before == bytes
            case .initial: Self.isRenaming(before, bytes)
            case .bytes(let plaintext): plaintext == bytes
            case .sampled(let plaintext): Self.isRenaming(plaintext, bytes)
            case .asPlayed, .impossible: false
            }
        guard isRight else {
            return .wrong(
                raw == bytes || before == bytes
                    ? "the source's bytes without a key line" : "wrong bytes without a key line")
        }
        if case .sampled = original {
            // If the player can read the init segment, it must find clear samples, too.
            guard let map = own.map else { return .shown }
            if case .failed(let text) = after[map].file.flatMap({ view.files[$0] }) { return .refused(text) }
            do { _ = try shown.played(number, of: after, in: playlist) } catch {
                return .unplayable("\(error)")
            }
        }
        return reference.keys.isEmpty ? .clear : .shown
    }

    /// Types of boxes that the view renames.
    private static let renamed = Set(
        ["encv", "enca", "sinf", "pssh", "senc", "saiz", "saio", "sgpd", "sbgp"].map { Array($0.utf8) })

    /// Returns true if both are equal except for box types about encryption.
    private static func isRenaming(_ original: [UInt8]?, _ bytes: [UInt8]) -> Bool {
        guard let original, original.count == bytes.count else { return false }
        if original == bytes { return true }
        var next = 0
        while next < bytes.count {
            if original[next] == bytes[next] {
                next += 1
                continue
            }
            let start = (max(next - 3, 0)...next).first {
                $0 + 4 <= original.count && renamed.contains(Array(original[$0..<($0 + 4)]))
            }
            guard let start else { return false }
            next = start + 4
        }
        return true
    }

    // MARK: Messages

    private func describe(_ text: String, _ before: HlsPlayer.Reference, _ after: HlsPlayer.Reference) -> String {
        let keys = before.keys.map { "\($0.method) \($0.uri.prefix(40))" }.sorted()
        let range = after.range.map { " \($0)" } ?? ""
        return "line \(before.line), \(before.role) \(before.uri): \(text); "
            + "file \(after.file ?? "none")\(range), keys \(keys)"
    }

    private func texts(_ stream: HlsTree.Stream) -> String {
        let files = tree.files.map { "\($0.key) \($0.value.count)" }.sorted().joined(separator: ", ")
        func text(_ bytes: [UInt8]) -> String {
            let text = String(decoding: bytes, as: UTF8.self).replacing("\r\n", with: "\n").replacing("\r", with: "\n")
            // Drop the zeros of UTF-16.
            return text.filter { $0 == "\n" || ($0.asciiValue ?? 32) >= 32 }
        }
        let rendered = tree.rendered(stream).bytes
        let source = text(rendered)
        var shown = "unreadable"
        if case .bytes(let bytes) = view.files[stream.path] { shown = bytes == rendered ? source : text(bytes) }
        return "\(source)--- the view:\n\(shown == source ? "the same\n" : shown)--- files: \(files)\n"
            + "keys given \(tree.given.keys.sorted()), missing \(view.missingKeys)\n"
            + "left \(view.left), problems \(view.problems)"
    }
}
