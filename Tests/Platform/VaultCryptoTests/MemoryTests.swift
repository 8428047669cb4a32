import CLinux
import Foundation
import Testing

@testable import VaultCrypto

/// Secrets, which are in memory before they are forgotten or released, but not afterwards. Each test runs in its own
/// process.
@Suite struct MemoryTests {
    @Test("a test's own key expansion is that of FIPS 197 appendix A_3")
    func testsOwnKeyExpansion() {
        var schedule = [UInt8](repeating: 0, count: AESKeyExpansion.size)
        let key = bytes(hex: "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
        key.withUnsafeBytes { key in schedule.withUnsafeMutableBytes { AESKeyExpansion.expand(key, into: $0) } }
        #expect(hex(Array(schedule[32..<48])) == "9ba354118e6925afa51a8b5f2067fcde")
        #expect(hex(Array(schedule[224...])) == "fe4890d1e6188d0b046df344706c631e")
    }

    @Test("secret bytes, forgotten and put back")
    func secretBytes() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let key = try SecretBytes.random(count: 32)
            let copy = key.subrange(0..<32)
            scanner.add("key", key)
            #expect(try scanner.found() == ["key"])
            key.forget()
            #expect(try scanner.found() == ["key"], "the copy is still there")
            key.refill(from: copy)
            copy.forget()
            #expect(try scanner.found() == ["key"])
            key.forget()
            linux_scrub_thread()
            #expect(try scanner.found().isEmpty)
        }
    }

    @Test("a SIV cipher's key schedules, and those of its messages")
    func sivCiphersKeySchedules() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let key = try SecretBytes.random(count: 64)
            scanner.addKeySchedule("MAC key", key)
            scanner.addKeySchedule("CTR key", key, from: 32)
            let cipher = try SivCipher(key: key)
            let sealed = try cipher.encrypt(pattern(100), associatedData: [[1]])
            #expect(try cipher.decrypt(sealed, associatedData: [[1]]) == pattern(100))
            #expect(try scanner.found().count == 8)
            cipher.forget()
            key.forget()
            linux_scrub_thread()
            #expect(try scanner.found() == [])
            withExtendedLifetime(cipher) {}
        }
    }

    @Test("a SIV cipher that was released, and one that has another key now")
    func sivCipherThatWasReleased() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            var key: SecretBytes? = try .random(count: 64)
            let rekeyed = try SivCipher(key: try #require(key))
            do {
                let released = try SivCipher(key: try #require(key))
                scanner.addKeySchedule("key", try #require(key))
                #expect(try scanner.found().count == 4)
                withExtendedLifetime(released) {}
            }
            key = nil
            #expect(try scanner.found().count == 4, "one is still there")
            try rekeyed.rekey(.random(count: 64))
            linux_scrub_thread()
            #expect(try scanner.found() == [])
        }
    }

    @Test("a chunk cipher's key schedules")
    func chunkCiphersKeySchedules() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let keys = ChunkKeys(
                cipherKey: try .random(count: 32), macKey: try .random(count: 32), macR: try .random(count: 16))
            scanner.addKeySchedule("cipher key", keys.cipherKey)
            scanner.addKeySchedule("MAC key", keys.macKey)
            scanner.add("MAC r", keys.macR)
            let cipher = try ChunkCipher()
            let plaintext = pattern(10 * 4096 + 100)
            let records = try seal(plaintext, firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
            let opened = try open(
                records, firstChunkIndex: 0, chunkSize: 4096, length: plaintext.count, cipher, keys)
            #expect(opened.plaintext == plaintext)
            #expect(try scanner.found().count == 9)
            keys.forget()
            #expect(try scanner.found().count == 9, "the cipher has them still")
            cipher.forgetKeys()
            linux_scrub_thread()
            #expect(try scanner.found() == [])
            withExtendedLifetime(cipher) {}
        }
    }

    @Test("no secret of HMAC, HKDF and scrypt remains in memory")
    func noSecretOfHmac() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            do {
                let secret = try SecretBytes.random(count: 32)
                let derived = try Hkdf.derive(secret: secret, salt: [1, 2, 3], info: Array("test".utf8), count: 64)
                let stretched = try Scrypt.derive(passphrase: secret, salt: [4], logN: 10, r: 8, p: 1, count: 64)
                _ = try HmacSha256.authenticate([5], key: derived)
                scanner.add("secret", secret)
                scanner.add("derived", derived)
                scanner.add("stretched", stretched)
                #expect(try scanner.found().count == 3)
                for key in [secret, derived, stretched] { withExtendedLifetime(key) {} }
            }
            linux_scrub_thread()
            #expect(try scanner.found() == [])
        }
    }

    @Test("no freed bytes remain on the heap")
    func noFreedBytesOnHeap() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let marker = scanner.add("marker", count: 32) { _ = try? SecureRandom.fill($0) }
            // The sizes cover all lists of glibc's allocator: thread cache, fast bins, bins, its own mapping.
            for size in [32, 100, 1000, 2000, 100_000, 300_000, 40 << 20] {
                let pieces = try (0..<(size > 1 << 20 ? 1 : 20)).map { _ in try heapPiece(size + 32, marker, at: size) }
                #expect(try scanner.found() == ["marker"], "\(size)")
                for piece in pieces { free(piece) }
                #expect(try scanner.found() == [], "\(size), freed")

                let piece = try heapPiece(size, marker, at: 0)
                // A neighbour keeps the block from growing in place.
                let neighbour = malloc(size)
                let grown = try #require(realloc(piece, 3 * size))
                #expect(UnsafeRawBufferPointer(start: grown, count: 32).elementsEqual(marker))
                memset(grown, 0, 32)
                #expect(try scanner.found() == [], "\(size), grown")
                UnsafeMutableRawBufferPointer(start: grown + 2 * size, count: 32).copyMemory(from: marker)
                let shrunk = realloc(grown, size)
                #expect(try scanner.found() == [], "\(size), shrunk")
                free(shrunk)
                free(neighbour)
            }
        }
    }

    @Test("the stack of functions that returned is wiped")
    func stackIsWiped() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let marker = scanner.add("marker", count: 32) { _ = try? SecureRandom.fill($0) }
            leave(marker, depth: 60)
            #expect(try scanner.found() == ["marker"])
            linux_scrub_thread()
            #expect(try scanner.found() == [])
        }
    }
}

/// Allocates `size` bytes of the heap, with `bytes` in them.
private func heapPiece(
    _ size: Int, _ bytes: UnsafeRawBufferPointer, at offset: Int
) throws -> UnsafeMutableRawPointer {
    let piece = try #require(malloc(size))
    UnsafeMutableRawBufferPointer(start: piece + offset, count: bytes.count).copyMemory(from: bytes)
    return piece
}

/// Puts the bytes on the stack, `depth` kilobytes down, below the calls of the scan. It then calls nothing, because the
/// first call of a C function overwrites the stack below it while the dynamic linker looks for the function.
@inline(never)
private func leave(_ bytes: UnsafeRawBufferPointer, depth: Int) {
    withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 16) { space in
        guard depth > 0, let base = space.baseAddress else { return space.copyMemory(from: bytes) }
        explicit_bzero(base, space.count)
        leave(bytes, depth: depth - 1)
    }
}
