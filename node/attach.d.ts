// Loaded for its effect: addons of this process use our samplers.
export {};
