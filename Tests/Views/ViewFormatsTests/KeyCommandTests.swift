import Foundation
import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

/// Commands that print keys, and others.
@Suite(.timeLimit(.minutes(60))) struct KeyCommandTests {
    let place: KeyPlace

    init() throws { place = try KeyPlace() }

    private func run(
        _ text: String, limit: Duration = .seconds(60), _ subject: KeyCommand.Subject = .path([UInt8]("a".utf8))
    ) throws(ViewError) -> KeyMaterial {
        try place.command(text, limit: limit).key(for: subject, cipher: .aes128CBC)
    }

    @Test("The command's output is the key, in binary or hexadecimal")
    func prints() throws {
        #expect(try run("printf 'sixteen key byte'").key.exposed == KeyPlace.key)
        #expect(try run("printf 'sixteen key byte\\n'").key.exposed == KeyPlace.key)
        #expect(try run("echo 00112233445566778899aabbccddeeff").key.count == 16)
        #expect(
            noKeyReason(try run("echo no"))
                == "the output of the key command has 3 bytes, which is not a key of 16 bytes or 32 hexadecimal digits")
    }

    @Test(
        "Its environment is ours with the URI's or path's bytes: in a process in which no other test reads it meanwhile"
    )
    func environment() async {
        await #expect(processExitsWith: .success) {
            let tests = try KeyCommandTests()
            let odd: [UInt8] = [0x27, 0x20, 0xFF, 0x0A, 0x24, 0x28]
            setenv("VAULTFS_KEY_PATH", "stale", 1)
            let uri = "printf %s \"$VAULTFS_KEY_URI-${VAULTFS_KEY_PATH-unset}\" >out; echo $HOME >home; printf %016d 0"
            _ = try tests.run(uri, .uri(odd))
            #expect(try tests.place.read("out") == odd + [UInt8]("-unset".utf8))
            let home = getenv("HOME").map { String(cString: $0) } ?? ""
            #expect(try tests.place.read("home") == [UInt8]("\(home)\n".utf8))
            let path = "printf %s \"${VAULTFS_KEY_URI-unset}-$VAULTFS_KEY_PATH\" >out; printf %016d 0"
            _ = try tests.run(path, .path(odd))
            #expect(try tests.place.read("out") == [UInt8]("unset-".utf8) + odd)
            #expect(noKeyReason(try tests.run("printf %016d 0", .path([0x61, 0]))) != nil)
        }
    }

    @Test("It has its own session, empty input, and none of our open descriptors")
    func isolation() throws {
        // Leak a descriptor without close-on-exec, as a library might.
        let leaked = fcntl(place.root.fd, F_DUPFD, 500)
        defer { close(leaked) }
        _ = try run(
            "cat; [ -e /proc/$$/fd/\(leaked) ] && exit 9; echo $$ $(ps -o sid= -p $$) >ids; printf %016d 0")
        let ids = String(decoding: try place.read("ids"), as: UTF8.self).split(whereSeparator: \.isWhitespace)
        #expect(ids.count == 2 && ids[0] == ids[1])
    }

    @Test("A failure is an error with the code, and its error output is logged, bounded and safely")
    func fails() throws {
        let complaint = "printf 'no\\033[1m network\\n\\nline\\n' >&2; printf %0300d 0 >&2; exit 7"
        #expect(noKeyReason(try run(complaint)) == "the key command failed with exit code 7")
        let long = "key command: \(String(repeating: "0", count: 200))…"
        #expect(place.log == ["key command: no?[1m network", "key command: line", long])
        #expect(noKeyReason(try run("kill -9 $$")) == "the key command was ended by signal 9")
        #expect(noKeyReason(try run("printf 'sixteen key byte'; exit 1")) == "the key command failed with exit code 1")
    }

    @Test("The error output of a command that succeeds is not logged: it may be the key")
    func silence() throws {
        _ = try run("set -x; printf 'sixteen key byte'")
        #expect(place.log.isEmpty)
    }

    @Test("However long its error output is, it is read and only a little of it kept")
    func complains() throws {
        let reason = noKeyReason(try run("yes complaint | head -c 1000000 >&2; exit 2"))
        #expect(reason == "the key command failed with exit code 2")
        #expect(place.log.count == 20)
    }

    @Test("A command that exceeds its time is killed with all that it started")
    func tooLong() throws {
        try place.makeFifo("life")
        var said: [UInt8] = []
        // On a busy machine a command may be killed before it has begun, so try again with more time.
        for limit in [Duration.milliseconds(300), .seconds(3), .seconds(30)] where said.isEmpty {
            let life = try place.openFifo("life")
            let reason = noKeyReason(try run("(echo alive; exec sleep 1000) >life & wait", limit: limit))
            #expect(reason == "the key command was killed: not done after \(limit)")
            // The fifo ends when the last process with it has gone.
            said = try place.awaitEnd(of: life)
        }
        #expect(said == [UInt8]("alive\n".utf8))
    }

    @Test("A command with too much output is killed")
    func tooMuch() throws {
        #expect(noKeyReason(try run("yes")) == "the key command was killed: it prints more than 4096 bytes")
        #expect(noKeyReason(try run("head -c 4096 /dev/zero"))?.contains("4096 bytes, which is not") == true)
    }

    @Test("A command that closes its output and continues is waited for, up to its timeout")
    func closesOutput() throws {
        let key = try run("printf 'sixteen key byte'; exec >&- 2>&-; echo >done")
        #expect(key.key.exposed == KeyPlace.key)
        #expect(try place.read("done") == [0x0A])
        let reason = noKeyReason(
            try run("printf 'sixteen key byte'; exec >&- 2>&-; sleep 1000", limit: .milliseconds(300)))
        #expect(reason == "the key command was killed: not done after 0.3 seconds")
    }

    @Test("A process that it leaves behind with the pipe is not waited for")
    func leavesChild() throws {
        let found = try run("sleep 1000 & echo $! >pid; printf 'sixteen key byte'")
        #expect(found.key.exposed == KeyPlace.key)
        // A successful command's children are left alone, because an agent belongs to the user.
        let pid = try #require(pid_t(String(decoding: try place.read("pid"), as: UTF8.self).filter(\.isNumber)))
        #expect(kill(pid, SIGKILL) == 0)
    }

    @Test("Cancelling ends running commands and refuses new ones, until resumed")
    func cancelled() throws {
        try place.makeFifo("started")
        let command = place.command(
            "if [ -e again ]; then printf 'sixteen key byte'; else echo >started; sleep 1000; fi")
        let reason = Monitor<String??>(nil)
        @Sendable func refusal() -> String? { noKeyReason(try command.key(for: .path([0x61]), cipher: .aes128CBC)) }
        let thread = try BackgroundThread {
            let result = refusal()
            reason.update { $0 = .some(result) }
        }
        try place.awaitFifo("started")
        command.cancelAll()
        thread.join()
        let expected = "the key command was cancelled: the view is locked or unmounted"
        #expect(reason.update { $0 } == expected)
        try place.write("again", [])
        #expect(noKeyReason(try command.key(for: .path([0x61]), cipher: nil)) == expected)
        command.resume()
        #expect(try command.key(for: .path([0x61]), cipher: nil).key.exposed == KeyPlace.key)
    }

    @Test("No zombies and no descriptors are left: in a process in which no other test opens any")
    func leavesNothing() async {
        await #expect(processExitsWith: .success) {
            let tests = try KeyCommandTests()
            let before = try KeyCommandTests.descriptorCount()
            for run in 0..<60 {
                let text = ["exit 3", "yes", "printf 'sixteen key byte'", "sleep 1000"][run % 4]
                let limit = Duration.milliseconds(run % 4 == 3 ? 30 : 60_000)
                _ = try? tests.run("echo $$ >pid; \(text)", limit: limit)
                let pid = String(decoding: try tests.place.read("pid"), as: UTF8.self).filter(\.isNumber)
                // On a busy machine a command may be killed before it has written its process id.
                try poll("its end") { pid.isEmpty || access("/proc/\(pid)", F_OK) == -1 }
            }
            // Dispatch opens some of its descriptors late.
            #expect(try KeyCommandTests.descriptorCount() < before + 10)
        }
    }

    private static func descriptorCount() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
    }
}
