import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// A rename over an open file on a store that refuses it, and then removes the old file at its last close (SMB).
@Suite(.timeLimit(.minutes(60))) struct OpenFileRenameTests {
    private static let long = String(repeating: "l", count: 200)

    private func entries(_ vault: MountedVault) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: vault.path)
    }

    @Test("Store-42: a save by rename works, and who has the old file open can read it", arguments: ["old", long])
    func replaced(name: String) throws {
        let vault = try MountedVault()
        try vault.file(name, [1])
        try vault.file("new", [2])
        try vault.file("newer", [3])
        let store = SmbStore()
        let handle = try store.run(in: vault.path) {
            try vault.remount()
            let handle = try vault.opened(name)
            for other in ["new", "newer"] {
                try vault.system.rename(ascii(other), in: .root, to: ascii(name), in: .root, flags: 0, for: .root)
            }
            return handle
        }
        #expect(try vault.read(handle) == [1] && vault.content(name) == [3])
        vault.system.release(handle)
        // The only refusal is that of the probe.
        #expect(store.refusals == 1)
        #expect(try vault.names() == [name])
        try vault.remount()
        #expect(try vault.content(name) == [3])
        #expect(try !entries(vault).contains { $0.contains("kept") || $0.contains("tmp") })
    }

    @Test(
        "Store-42: a removed name is free at once, also while the file is open or waits to be sealed",
        arguments: ["old", long])
    func removed(name: String) throws {
        let vault = try MountedVault()
        let handle = try SmbStore().run(in: vault.path) {
            try vault.remount()
            try vault.file(name, [1])
            let handle = try vault.opened(name)
            for content in 2..<UInt8(5) {
                try vault.system.remove(ascii(name), in: .root, isDirectory: false)
                #expect(try vault.names().isEmpty)
                // Closed, and not sealed yet.
                try vault.file(name, [content])
            }
            return handle
        }
        #expect(try vault.read(handle) == [1] && vault.content(name) == [4])
        vault.system.release(handle)
        try vault.remount()
        #expect(try vault.content(name) == [4] && !entries(vault).contains { $0.contains("tmp") })
    }

    @Test("Store-42: a removal that fails leaves the file its name")
    func failedRemoval() throws {
        let vault = try MountedVault()
        let isRefusing = Mutex(false)
        let refuse = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .remove && isRefusing.withLock(\.self) ? EACCES : 0
        }
        let handle = try SmbStore().run(in: vault.path, answer: refuse) {
            try vault.remount()
            try vault.file("old", [1])
            let handle = try vault.opened("old")
            isRefusing.withLock { $0 = true }
            expect(.permissionDenied) { try vault.system.remove(ascii("old"), in: .root, isDirectory: false) }
            return handle
        }
        #expect(try vault.names() == ["old"] && vault.content("old") == [1])
        vault.system.release(handle)
    }

    @Test("Store-42: whatever call fails, or is the last before a kill, no file is lost", arguments: [false, true])
    func failures(isKill: Bool) throws {
        var (number, isReached) = (0, true)
        while isReached {
            let vault = try MountedVault()
            try vault.file("old", [1])
            try vault.file("new", [2])
            let calls = Mutex((isCounting: false, count: 0))
            let answer = { @Sendable [number] (call: WatchedCall) -> Int32 in
                calls.withLock { calls in
                    guard calls.isCounting else { return 0 }
                    defer { calls.count += 1 }
                    return calls.count == number || isKill && calls.count > number ? EIO : 0
                }
            }
            var hasFailed = false
            let handle = try SmbStore().run(in: vault.path, answer: answer) {
                try vault.remount()
                let handle = try vault.opened("old")
                calls.withLock { $0.isCounting = true }
                do {
                    try vault.system.rename(ascii("new"), in: .root, to: ascii("old"), in: .root, flags: 0, for: .root)
                } catch { hasFailed = true }
                return handle
            }
            vault.system.release(handle)
            isReached = calls.withLock { $0.count > number }
            try vault.remount()
            let names = try vault.names()
            let contents = try names.map { try vault.content($0) }
            #expect(contents.contains([2]) && (!hasFailed || contents.contains([1])), "\(number): \(names)")
            number += 1
        }
        #expect(number >= 5)
    }

    @Test("Store-42: a new log replaces the open one, and what was acknowledged is there")
    func renewal() throws {
        let vault = try MountedVault()
        try vault.file("file", [UInt8](repeating: 1, count: 10_000))
        let store = SmbStore()
        let isFailing = Mutex(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.path.hasSuffix("/vaultfs.log") && call.kind == .synchronize && isFailing.withLock(\.self) ? EIO : 0
        }
        let handle = try store.run(in: vault.path, answer: answer) {
            try vault.remount()
            let handle = try vault.opened("file")
            try vault.write(handle, [2])
            isFailing.withLock { $0 = true }
            expect(.ioError) { try handle.file.synchronize(dataOnly: true) }
            isFailing.withLock { $0 = false }
            try vault.system.store.log.renewIfNeeded()
            try handle.file.synchronize(dataOnly: true)
            #expect(store.refusals == 1)
            // Copies the state that a kill would leave.
            let copies = DirectoryCopies(of: vault.path)
            try copies.take()
            let log = try Data(contentsOf: URL(filePath: copies.paths[0] + "/vaultfs.log"))
            #expect(log.count > 4096)
            #expect(try !entries(vault).contains { $0.contains("kept") || $0.contains("tmp") })
            // Simulates a removal by another program.
            unlink(vault.path + "/vaultfs.log")
            try vault.write(handle, [3])
            try handle.file.synchronize(dataOnly: true)
            #expect(try entries(vault).contains("vaultfs.log"))
            return handle
        }
        #expect(try vault.read(handle).first == 3)
        vault.system.release(handle)
    }
}
