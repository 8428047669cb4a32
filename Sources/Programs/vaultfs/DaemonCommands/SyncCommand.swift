internal import ArgumentParser
internal import Control

/// `vaultfs sync [MOUNTPOINT | --all]`
struct SyncCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sync", abstract: "Make everything durable, in the vault's files.",
        discussion: """
            Returns when everything that was written is in the vault's files, and vaultfs.log holds nothing that is not. \
            A snapshot of the vault's file system then needs no log. A locked vault can be synchronized too. If \
            something cannot be made durable, or was lost since the mount, the exit code is \
            \(FailureCode.notDurable.rawValue). With --json: the answer as an object; with --all, an array of them.
            """)

    @OptionGroup
    var mounts: MountChoice

    func run() throws {
        try mounts.writePagesBack()
        try mounts.report(mounts.ask(.sync), show: show)
    }

    private func show(_ mountpoint: String, _ response: ControlResponse) throws(CommandFailure) {
        switch response {
        case .synchronized: if !mounts.json { Console.confirm("\(mountpoint): synchronized") }
        case .error(let failure):
            throw CommandFailure(
                failure.code == .notDurable ? .notDurable : .failure,
                "\(mountpoint): not synchronized: \(Console.shown(failure.message))")
        default: throw CommandFailure(.failure, "\(mountpoint): the daemon answered something else")
        }
    }
}
