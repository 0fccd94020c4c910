// Loaded for what it does: addons of this process sample with ours.
export {};
