extension Store {
    /// True if a file's length and times do not follow from its backing file's attributes, so that only the opened file knows
    /// them: the log has changes, records are missing, or a power cut may have torn the file's end. Such a store is
    /// read-only. One that writes has put the changes in place.
    package var opensForAttributes: Bool { isReadOnly && (hasFoundChanges || readsCutFiles || followsUncleanEnd) }
}
