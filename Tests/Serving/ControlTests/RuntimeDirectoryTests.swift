import Foundation
import SystemPackage
import Testing

@testable import Control

@Suite struct RuntimeDirectoryTests {
    private let place: ControlTestDirectory

    init() throws {
        place = try ControlTestDirectory()
    }

    @Test("a directory that others can enter is refused", arguments: [0o755, 0o770, 0o701, 0o777] as [mode_t])
    func directoryThatOthersCanEnter(mode: mode_t) throws {
        let path = place.path.appending("open")
        #expect(mkdir(path.string, 0o700) == 0)
        #expect(chmod(path.string, mode) == 0)
        let error = #expect(throws: ControlError.self) { try RuntimeDirectory.make(at: path, user: geteuid()) }
        #expect(
            error == .unsafeDirectory(path, "its mode is \(String(mode, radix: 8)), not 700"))
    }

    @Test("another user's directory is refused")
    func anotherUsersDirectoryIsRefused() throws {
        let error = #expect(throws: ControlError.self) {
            try RuntimeDirectory.make(at: place.path, user: geteuid() + 1)
        }
        #expect(error == .unsafeDirectory(place.path, "it belongs to user \(geteuid())"))
    }

    @Test("a symbolic link is not followed")
    func symbolicLinkIsNotFollowed() throws {
        let link = place.path.appending("link")
        #expect(symlink(place.path.string, link.string) == 0)
        #expect(throws: ControlError.self) { try RuntimeDirectory.make(at: link, user: geteuid()) }
    }

    @Test("a file in its place")
    func fileInItsPlace() throws {
        let path = place.path.appending("file")
        try Data().write(to: URL(fileURLWithPath: path.string))
        #expect(throws: ControlError.system(.notDirectory, "cannot open", path)) {
            try RuntimeDirectory.make(at: path, user: geteuid())
        }
    }

    @Test(
        "places in order of preference",
        arguments: [
            (0 as UInt32, "/run/user/0", ["/run/vaultfs", "/tmp/vaultfs-0"]),
            (7, nil, ["/run/user/7/vaultfs", "/tmp/vaultfs-7"]),
            (7, "/run/user/7", ["/run/user/7/vaultfs", "/tmp/vaultfs-7"]),
            (7, "/elsewhere", ["/elsewhere/vaultfs", "/run/user/7/vaultfs", "/tmp/vaultfs-7"]),
            (7, "relative", ["/run/user/7/vaultfs", "/tmp/vaultfs-7"]),
        ]
    )
    func placesInOrderOfPreference(user: UInt32, base: String?, places: [String]) {
        #expect(RuntimeDirectory.candidates(user: user, base: base) == places.map { FilePath($0) })
    }

    @Test("names of sockets are short and differ")
    func namesOfSocketsAreShort() {
        let names = (0..<1000).map { RuntimeDirectory.socketName(mountpoint: Array("/mnt/\($0)".utf8)) }
        #expect(Set(names).count == names.count)
        #expect(names.allSatisfy { $0.count == 29 })
    }
}
