// A language client without a server: it keeps what it is asked, and the test answers.

export const State = { Stopped: 1, Running: 2, Starting: 3 };
export class TextEdit { static is = () => true; }

interface Request { method: string; params: Record<string, unknown>; answer: (result: unknown) => void; fail: (error: unknown) => void }

export class LanguageClient {
  static last: LanguageClient;
  static startsAreRefused = false;
  static started: Promise<void> = Promise.resolve();
  requests: Request[] = [];
  notifications: string[] = [];
  private heard: Record<string, (params: unknown) => void> = {};
  private listen = (_: { newState: number }) => {};

  constructor() { LanguageClient.last = this; }
  registerFeature(): void {}
  onNotification(name: string, hear: (params: unknown) => void): void { this.heard[name] = hear; }
  tell(name: string, params: unknown): void { this.heard[name](params); }
  end(): void { this.listen({ newState: State.Stopped }); }
  onDidChangeState(listener: (event: { newState: number }) => void): void { this.listen = listener; }
  async stop(): Promise<void> {}
  async sendNotification(method: string): Promise<void> { this.notifications.push(method); }

  async start(): Promise<void> {
    this.listen({ newState: State.Starting });
    if (LanguageClient.startsAreRefused) throw new Error("ENOENT");
    await LanguageClient.started;
  }

  async dispose(): Promise<void> {
    if (LanguageClient.startsAreRefused) throw new Error("Client is not running and can't be stopped.");
  }

  sendRequest(method: string, params: Record<string, unknown>): Promise<unknown> {
    return new Promise((answer, fail) => this.requests.push({ method, params, answer, fail }));
  }
}
