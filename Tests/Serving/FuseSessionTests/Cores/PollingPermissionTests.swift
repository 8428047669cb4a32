import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import FuseSession

@Suite(.timeLimit(.minutes(60)))
struct PollingPermissionTests {
    /// Makes a directory like /sys/class/power_supply, with one supply for each dictionary of files.
    private func supplies(_ supplies: [[String: String]]) throws -> (TemporaryDirectory, FilePath) {
        let directory = try TemporaryDirectory()
        for (number, files) in supplies.enumerated() {
            let supply = FilePath(directory.path).appending("supply\(number)")
            #expect(mkdir(supply.string, 0o700) == 0)
            for (name, value) in files {
                let file = try Descriptor(path: supply.appending(name), flags: O_WRONLY | O_CREAT, mode: 0o600)
                try file.write(Array("\(value)\n".utf8), at: 0)
            }
        }
        return (directory, FilePath(directory.path))
    }

    private func permits(_ files: [[String: String]], cores: Int = .max, samples: Int = 8) throws -> Bool {
        let (directory, path) = try supplies(files)
        defer { withExtendedLifetime(directory) {} }
        var permission = PollingPermission(cores: IdleCores(of: cores), supplies: path)
        return (0..<samples).map { _ in permission.sample() }.last ?? false
    }

    @Test("A worker polls on mains, but not on the machine's battery")
    func battery() throws {
        #expect(try permits([]))
        #expect(try permits([["type": "Mains", "online": "0"]]))
        #expect(try permits([["type": "Battery", "status": "Charging"]]))
        #expect(try permits([["type": "Battery", "status": "Discharging", "scope": "Device"]]))
        #expect(try !permits([["type": "Mains"], ["type": "Battery", "status": "Discharging", "scope": "System"]]))
        #expect(try !permits([["type": "Battery", "status": "Discharging"]], samples: 1))
    }

    @Test("A machine without power supplies is not on battery")
    func none() {
        var permission = PollingPermission(cores: IdleCores(of: .max), supplies: "/proc/self/no-such-directory")
        let mayPoll = permission.sample()
        #expect(mayPoll)
    }

    @Test("A worker polls while programs wait for a core for a moment only")
    func busy() throws {
        #expect(try permits([], cores: 0, samples: 1))
        #expect(try !permits([], cores: 0))
    }
}
