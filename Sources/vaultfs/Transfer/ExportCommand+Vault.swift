internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import VaultStore

extension ExportCommand {
    /// Decrypts a vault, or what is at a path in it.
    func runVault() throws {
        ProcessSetup.raiseLimits()
        let (directory, path) = try source.open()
        let to = try LocalPlace(destination.path, mayBeMissing: true)
        let root = try Descriptor(at: directory.root.rawValue, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        guard (try? to.root.isInside(root)) != true else { throw ExportTarget.insideSource(destination.path) }
        let session = try VaultSession(directory, isReadOnly: true, secret: secret, slots: slots) {
            "copy from \($0) instead, or unmount it first"
        }
        let run = TransferRun(
            report: TransferReport(source: source.whole, isJSON: transfer.json), interruption: try Interruption {},
            lease: session.lease, workspaces: try session.makeWorkspaces(), whileRunning: {},
            destination: destination.path)
        do {
            try perform(run, session, path, to, leavingOut: root.status())
        } catch {
            run.endIfInterrupted(error)
            throw error
        }
    }

    private func perform(
        _ run: TransferRun, _ session: VaultSession, _ path: [[UInt8]], _ to: LocalPlace, leavingOut vault: stat
    ) throws {
        let (tree, local) = (try session.open(readsCutFiles: damaged), LocalTree())
        let from = try TransferTarget.source(tree, tree.root, path, shown: source.whole.shown)
        // A file that goes into a directory keeps its name.
        let target = try TransferTarget.destination(
            local, to.root, to.path, for: from.name, shown: destination.path.shown)
        // Its files would be taken for what an earlier export has left.
        guard try local.find(Array(VaultDirectory.configurationEntry.utf8), in: target.directory) == nil else {
            throw CommandFailure(.failure, "\(destination.path.shown) is a vault: choose another destination")
        }
        var options = transfer.options
        options.savesDamaged = damaged
        options.dropsSpecial = !preserveSpecial
        options.leftOut = vault
        options.beginCopying()
        var totals = try run.run((tree, from), (local, target), options)
        count(hidden: tree.hiddenNames, &totals, run.report)
        try Self.synchronize(target.directory, destination.path)
        var compared: TransferTotals?
        if transfer.verify {
            options.isComparing = true
            compared = try run.run((tree, from), (local, target), options)
        }
        try run.report.finish("exported", to: destination.path, totals, compared: compared)
    }

    /// Names that do not authenticate are left out.
    private func count(hidden: Int, _ totals: inout TransferTotals, _ report: TransferReport) {
        if hidden == 0 { return }
        let message =
            "\(AmountText.counted(hidden, "name")) that did not authenticate left out: 'vaultfs verify' tells where"
        if damaged {
            totals.damaged += hidden
            report.addDamage([], [], message)
        } else {
            totals.failures += hidden
            report.addFailure([], message)
        }
    }

    /// Makes what was written durable, syncfs(2).
    private static func synchronize(_ directory: Descriptor, _ path: FilePath) throws {
        do throws(StoreError) {
            let opened = try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
            try retrying { linux_syncfs(opened.fd) }
        } catch {
            throw CommandFailure(.failure, "cannot make \(path.shown) durable: \(error.errno)")
        }
    }
}
