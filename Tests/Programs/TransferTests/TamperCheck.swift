import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import VaultStore

@testable import Transfer

/// Comparison of every way to read one of the vault's files with the model.
struct TamperCheck {
    private let vault: TamperVault
    private let index: Int
    private let tree: VaultTree
    private let expected: TamperModel.Shown?
    private var name: [UInt8] { vault.names[index] }

    init(_ vault: TamperVault, _ index: Int) throws {
        self.vault = vault
        self.index = index
        tree = try vault.mount()
        expected = vault.model.shown([UInt8](try Data(contentsOf: URL(filePath: vault.backing[index]))))
    }

    /// Returns the differences from the model, one line each.
    /// - Parameter isReplay: true if the change may have brought authentic data to the file.
    func problems(isReplay: Bool) throws -> [String] {
        var problems = try checkReading()
        let whole = expected?.whole
        let isSealed = vault.model.files[index].last?.isSealed ?? false
        if let whole, !isReplay, !vault.expected[index].allowsTampered(whole, isSealed: isSealed) {
            problems.append("not listed, and not detected")
        }
        if try copied() != whole { problems.append("a copy that skips holes") }
        problems += try checkExport(whole, savesDamaged: false)
        problems += try checkExport(whole, savesDamaged: true)
        return problems
    }

    private func open() throws(StoreError) -> VaultTree.Content? {
        guard let item = try tree.find(name, in: tree.root) else { return nil }
        do throws(StoreError) { return try tree.open(item, vault.workspace) } catch .damaged { return nil }
    }

    /// Reads chunk by chunk, then everything at once.
    private func checkReading() throws -> [String] {
        guard let content = try open() else { return expected == nil ? [] : ["it cannot be opened"] }
        guard let expected else { return ["it is opened"] }
        var problems: [String] = []
        if try tree.length(of: content) != UInt64(expected.length) { problems.append("its length") }
        for (number, chunk) in expected.chunks.enumerated() {
            let start = number * vault.chunkSize
            let count = min(vault.chunkSize, expected.authenticLength - start)
            if !isRead(content, start..<(start + count), as: chunk) { problems.append("chunk \(number)") }
        }
        if expected.authenticLength < expected.length {
            let tail = expected.authenticLength..<min(expected.length, expected.authenticLength + 10)
            if !isRead(content, tail, as: nil) { problems.append("behind its sealed length") }
        }
        return problems
    }

    private func isRead(_ content: VaultTree.Content, _ range: Range<Int>, as wanted: ArraySlice<UInt8>?) -> Bool {
        let buffer = UnsafeMutableRawBufferPointer(rebasing: vault.workspace.reply[..<range.count])
        do throws(StoreError) {
            let had = try tree.read(content, at: UInt64(range.lowerBound), into: buffer, vault.workspace)
            guard let wanted, had == wanted.count else { return false }
            return same(UnsafeRawBufferPointer(buffer), wanted)
        } catch .damaged {
            return wanted == nil
        } catch {
            return false
        }
    }

    /// Returns the content as read with lseek(2) and stat(2), like cp(1), or nil for an error.
    private func copied() throws -> [UInt8]? {
        do { return try copy() } catch StoreError.damaged { return nil }
    }

    private func copy() throws(StoreError) -> [UInt8]? {
        guard let content = try open(), let item = try tree.find(name, in: tree.root) else { return nil }
        let length = Int(try tree.status(of: item).st_size)
        var copy = [UInt8](repeating: 0, count: length)
        var offset = 0
        while let run = try tree.data(in: content, from: UInt64(offset)) {
            let end = min(length, Int(run.upperBound))
            offset = Int(run.lowerBound)
            while offset < end {
                let count = min(vault.workspace.reply.count, end - offset)
                let buffer = UnsafeMutableRawBufferPointer(rebasing: vault.workspace.reply[..<count])
                let had = try tree.read(content, at: UInt64(offset), into: buffer, vault.workspace)
                if had == 0 { return copy }
                copy.withUnsafeMutableBytes { copy in
                    UnsafeMutableRawBufferPointer(rebasing: copy[offset..<(offset + had)])
                        .copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[..<had]))
                }
                offset += had
            }
        }
        return copy
    }

    /// - Parameter savesDamaged: true to export like `export --damaged`.
    private func checkExport(_ whole: [UInt8]?, savesDamaged: Bool) throws -> [String] {
        let out = vault.path + "/out"
        let failed = Mutex(0)
        var options = TransferOptions()
        options.savesDamaged = savesDamaged
        let destination = try Descriptor(path: FilePath(bytes: Array(out.utf8)), flags: O_RDONLY | O_DIRECTORY)
        let transfer = TreeTransfer(
            from: tree, to: LocalTree<Workspace>(), options, failed: { _, _ in failed.withLock { $0 += 1 } },
            damaged: { _, _, _ in failed.withLock { $0 += 1 } }, isStopped: { false })
        try transfer.transferFile(name, in: tree.root, as: name, into: destination, [vault.workspace]) { _ in }
        let path = out + "/" + String(decoding: name, as: UTF8.self)
        let made = try? [UInt8](Data(contentsOf: URL(filePath: path)))
        unlink(path)
        let way = savesDamaged ? "an export with --damaged" : "an export"
        let left = try FileManager.default.contentsOfDirectory(atPath: out)
        for name in left { unlink(out + "/" + name) }
        var problems: [String] = []
        if !left.isEmpty { problems.append("\(way) leaves \(left.count) files") }
        if failed.withLock(\.self) != (whole == nil ? 1 : 0) { problems.append("\(way) reports") }
        let wanted = savesDamaged ? expected.map(salvaged) : whole
        if (made == nil) != (wanted == nil) || !same(made ?? [], wanted ?? []) {
            problems.append("\(way) makes \(made.map { "\($0.count) bytes" } ?? "nothing")")
        }
        return problems
    }

    /// Returns the verified content, with zeros for the rest.
    private func salvaged(_ shown: TamperModel.Shown) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(shown.length)
        for (number, chunk) in shown.chunks.enumerated() {
            let end = min(shown.authenticLength, (number + 1) * vault.chunkSize)
            bytes += chunk ?? [UInt8](repeating: 0, count: end - bytes.count)[...]
        }
        bytes += [UInt8](repeating: 0, count: shown.length - bytes.count)
        return bytes
    }
}
