internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import ViewFormats

/// Describes a file, or each file of a directory, with the commands to mount them: `info --view`.
struct ViewInfo {
    /// The output for a directory. `--json` has the names of the fields.
    private struct DirectoryReport: Encodable {
        let path: String
        let files: [ViewInfoReport]
        /// The defects of playlists, and the encrypted content left as it is by an hls view of the directory.
        let problems: [String]
    }

    private let path: FilePath
    private let isDirectory: Bool

    /// - Parameter path: as the user gave it.
    init(_ path: FilePath) throws(CommandFailure) {
        func kind(_ flags: Int32) throws(CommandFailure) -> mode_t {
            try CommandFailure.wrapping(
                "cannot open", path, try Descriptor(path: path, flags: linux_O_PATH | flags).status().st_mode & S_IFMT)
        }
        isDirectory = try kind(0) == S_IFDIR
        // Look beside the file itself, because a link to it has no playlists beside it.
        let isLink = try kind(O_NOFOLLOW) == S_IFLNK
        self.path = isLink ? try CommandFailure.wrapping("cannot open", path, try ResolvedPath.of(path)) : path
    }

    func print(asJSON: Bool) throws {
        let directory = isDirectory ? path : path.removingLastComponent()
        let root = try CommandFailure.wrapping(
            "cannot open", path,
            try Descriptor(path: directory.isEmpty ? "." : directory, flags: O_RDONLY | O_DIRECTORY))
        let survey = try CommandFailure.wrapping("cannot read", path, try SourceSurvey(root, isDeep: isDirectory))
        if isDirectory { return try printDirectory(survey, asJSON: asJSON) }
        guard let name = path.lastComponent else { return }
        let entry: SourceSurvey.Entry
        do throws(ViewError) { entry = try survey.entry(FilePath(root: nil, [name]).bytes) } catch {
            throw CommandFailure(.failure, "cannot open \(path.shown): \(error.reason)")
        }
        let report = ViewInfoReport(path, entry, directory: directory)
        if asJSON { try Console.printJSON(report) } else { report.printText() }
    }

    private func printDirectory(_ survey: SourceSurvey, asJSON: Bool) throws {
        var reports: [ViewInfoReport] = []
        var commands: [String] = []
        try CommandFailure.wrapping(
            "cannot read", path,
            try survey.visit { name, described in
                let file = path.appending(FilePath(bytes: name).components)
                switch described {
                case .success(let entry):
                    let report = ViewInfoReport(file, entry, directory: path)
                    if asJSON { reports.append(report) } else { report.printLine() }
                    for command in report.commands where !commands.contains(command) && commands.count < 10 {
                        commands.append(command)
                    }
                case .failure(let error): Console.report("\(file.shown): \(error.reason)")
                }
            })
        let problems = survey.problems
        if asJSON {
            return try Console.printJSON(DirectoryReport(path: path.string, files: reports, problems: problems))
        }
        for line in problems { Console.printField("problem", line) }
        for command in commands { Console.printField("to mount", command) }
    }
}
