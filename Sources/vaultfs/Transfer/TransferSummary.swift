internal import FileSystem
internal import SystemPackage
internal import Transfer

/// What came of an import or export. The names of the fields are the interface of `--json`.
struct TransferSummary: Encodable, Sendable {
    struct Failure: Encodable, Sendable {
        let path: String
        let message: String
    }

    struct Damage: Encodable, Sendable {
        struct Piece: Encodable, Sendable {
            let offset: UInt64
            let count: UInt64
        }

        let path: String
        let ranges: [Piece]
        let message: String
    }

    struct NotKept: Encodable, Sendable {
        let owners: Int
        let modes: Int
        let times: Int
        let attributes: Int
        let devices: Int
    }

    let source: String
    let destination: String
    let files: Int
    let directories: Int
    let symbolicLinks: Int
    let hardLinks: Int
    let specialFiles: Int
    let present: Int
    let bytes: UInt64
    let bytesPresent: UInt64
    /// Without those of comparing.
    let seconds: Double
    let notKept: NotKept
    /// Nil where nothing was compared.
    let verified: Int?
    let different: Int
    let failed: Int
    /// The first.
    let failures: [Failure]
    let damaged: Int
    /// The first.
    let damage: [Damage]

    init(
        source: FilePath, destination: FilePath, _ totals: TransferTotals, compared: TransferTotals?, seconds: Double,
        failures: [Failure], damage: [Damage]
    ) {
        self.source = source.string
        self.destination = destination.string
        files = totals.files
        directories = totals.directories
        symbolicLinks = totals.symbolicLinks
        hardLinks = totals.hardLinks
        specialFiles = totals.specialFiles
        present = totals.present
        bytes = totals.bytes
        bytesPresent = totals.bytesPresent
        self.seconds = seconds
        let lost = totals.lost
        notKept = NotKept(
            owners: lost.owners, modes: lost.modes, times: lost.times, attributes: lost.attributes,
            devices: lost.devices)
        verified = compared?.files
        different = compared?.different ?? 0
        failed = totals.failures + (compared?.failures ?? 0)
        self.failures = failures
        damaged = totals.damaged
        self.damage = damage
    }

    /// The line for people.
    func text(_ verb: String) -> String {
        let objects = [
            AmountText.counted(files, "file"),
            directories > 0 ? AmountText.counted(directories, "directory", "directories") : nil,
            symbolicLinks > 0 ? AmountText.counted(symbolicLinks, "link") : nil,
            hardLinks > 0 ? AmountText.counted(hardLinks, "hard link") : nil,
            specialFiles > 0 ? AmountText.counted(specialFiles, "special file") : nil,
        ].compactMap { $0 }
        let rate = seconds > 0 ? ", \(AmountText.bytes(Double(bytes) / seconds))/s" : ""
        return "\(verb) \(objects.joined(separator: ", ")), \(AmountText.bytes(Double(bytes)))\(rate)"
            + (present > 0 ? "; \(present) there already" : "")
            + (verified.map { "; \($0) verified" } ?? "")
    }

    /// What there is to say besides, the worst of it for the exit code.
    var problem: (code: FailureCode, message: String)? {
        let lost = [
            (notKept.owners, "owner"), (notKept.modes, "mode"), (notKept.times, "time"),
            (notKept.attributes, "set of attributes"), (notKept.devices, "device"),
        ].filter { $0.0 > 0 }.map {
            AmountText.counted($0.0, $0.1, $0.1 == "set of attributes" ? "sets of attributes" : nil)
        }
        let parts: [(FailureCode, String)] = [
            damaged > 0 ? (.damageFound, "\(damaged) damaged") : nil,
            different > 0 ? (.damageFound, "\(different) not as written") : nil,
            failed > 0 ? (.incomplete, AmountText.counted(failed, "failure")) : nil,
            lost.isEmpty ? nil : (.notKept, "could not keep \(lost.joined(separator: ", "))"),
        ].compactMap { $0 }
        guard let worst = parts.first else { return nil }
        return (worst.0, parts.map(\.1).joined(separator: ", "))
    }
}
