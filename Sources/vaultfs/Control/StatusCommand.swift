internal import ArgumentParser
internal import Control
internal import SystemPackage
internal import VaultStore

/// `vaultfs status [MOUNTPOINT]`
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of a mount, or of all your mounts.",
        discussion: "With --json: the status of MOUNTPOINT as an object; without MOUNTPOINT, an array of them.")

    @Argument(help: "Where a vault is mounted.")
    var mountpoint: PathArgument?

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        if let mountpoint {
            let status = try DaemonAccess.status(of: mountpoint.path)
            if json {
                try Console.printJSON(status)
            } else {
                StatusText.print(status)
            }
            return
        }
        let all = VaultUse.statuses().sorted { $0.mountpoint < $1.mountpoint }
        if json {
            try Console.printJSON(all)
        } else if all.isEmpty {
            print("No vault is mounted.")
        } else {
            for (index, status) in all.enumerated() {
                if index > 0 { print("") }
                StatusText.print(status)
            }
        }
    }
}
