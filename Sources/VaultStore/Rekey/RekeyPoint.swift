internal import FileSystem
internal import LinuxSystem

/// Before what of a rekey tests look at the vault, or have it fail.
enum RekeyPoint: CaseIterable, Sendable {
    case makeObject, fillObject, replaceEntry
    case writeIntent, placeIntent, removeIntent
    case linkName, renameLink
    case writeSidecar, renameName, removeSidecar
    case removeAttribute, setAttribute
    case writeRecord, placeRecord
    case finish
}

/// What a rekey calls before each step that changes the vault; what it throws is the failure of that step. Any thread.
typealias RekeyHook = @Sendable (RekeyPoint) throws(StoreError) -> Void
